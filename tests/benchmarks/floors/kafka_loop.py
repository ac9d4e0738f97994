"""Copy partitions of a topic to another cluster: a consumer into a producer, nothing kept of how far it came.

Arguments: the two clusters' addresses, the topic, how many records each partition has, then the partitions.
Prints the seconds from the first record to the last.
"""

import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

source, target, topic, each = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
partitions = [int(number) for number in sys.argv[5:]]

consumer = Consumer(
    {
        "bootstrap.servers": source,
        "group.id": "loop",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": 4 << 20,
        "queued.min.messages": 200_000,
        "fetch.queue.backoff.ms": 5,
    }
)
consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
producer = Producer(
    {
        "bootstrap.servers": target,
        "enable.idempotence": True,
        "linger.ms": 50,
        "batch.num.messages": 100_000,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 1 << 20,
    }
)
left, began = each * len(partitions), 0.0
while left:
    taken = consumer.consume(5_000, 1.0)
    began = began or (time.perf_counter() if taken else 0.0)
    for record in taken:
        while True:
            try:
                producer.produce(
                    topic,
                    record.value(),
                    record.key(),
                    record.partition(),
                    timestamp=record.timestamp()[1],
                    headers=record.headers(),
                )
            except BufferError:
                producer.poll(0.05)
            else:
                break
    producer.poll(0)
    left -= len(taken)
producer.flush()
print(time.perf_counter() - began)
