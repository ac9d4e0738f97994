resource "kafka_acl" "read" {
  for_each            = local.readers
  resource_name       = kafka_topic.shop["orders"].name
  resource_type       = "Topic"
  acl_principal       = "User:${each.value}"
  acl_host            = "*"
  acl_operation       = "Read"
  acl_permission_type = "Allow"
}

resource "kafka_acl" "group" {
  for_each                     = local.readers
  resource_name                = "${var.prefix}.${each.value}."
  resource_type                = "Group"
  resource_pattern_type_filter = "Prefixed"
  acl_principal                = "User:${each.value}"
  acl_host                     = "*"
  acl_operation                = "Read"
  acl_permission_type          = "Allow"
}

resource "kafka_acl" "everything" {
  resource_name       = "*"
  resource_type       = "Topic"
  acl_principal       = "User:admin"
  acl_host            = "10.0.0.7"
  acl_operation       = "All"
  acl_permission_type = "Allow"
}

resource "kafka_acl" "unknown" {
  resource_name       = aws_msk_topic.x.name
  resource_type       = "Topic"
  acl_principal       = "User:admin"
  acl_host            = "*"
  acl_operation       = "All"
  acl_permission_type = "Deny"
}

resource "kafka_quota" "batch" {
  entity_name = "batch"
  entity_type = "client-id"
  config = {
    "consumer_byte_rate" = "4000000"
  }
}

resource "kafka_user_scram_credential" "checkout" {
  username        = "checkout"
  scram_mechanism = "SCRAM-SHA-256"
  password        = "correct-horse-battery"
}
