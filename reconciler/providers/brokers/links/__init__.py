"""Links whose destination is a Kafka cluster: states in its ledger, fenced by transactional ids."""
