"""Provider of Confluent Cloud and Confluent Platform."""
