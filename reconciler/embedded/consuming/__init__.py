"""Reading as Kafka's users know it: consumers, subscriptions, groups and their offsets."""
