"""Read, produce and copy records of Kafka topics. The classes are picklable, for executors."""
