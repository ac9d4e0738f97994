"""Links to a Kafka cluster; their states are in its ledger, and transactional ids fence copiers."""
