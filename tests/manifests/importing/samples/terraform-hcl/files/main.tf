# Topics of the shop.
terraform {
  required_providers {
    kafka = {
      source = "Mongey/kafka"
    }
  }
}

provider "kafka" {
  bootstrap_servers = ["broker-1.example.com:9094", "broker-2.example.com:9094"]
  tls_enabled       = true
  ca_cert           = file("/etc/kafka/ca.pem")
  client_key        = var.client_key
  sasl_mechanism    = "scram-sha512"
  sasl_username     = "terraform"
  sasl_password     = var.password
  timeout           = 60
}

provider "kafka" {
  alias             = "east"
  bootstrap_servers = [var.east]
  tls_enabled       = false
}

variable "password" {
  sensitive = true
}

variable "client_key" {}

variable "east" {
  default = "east.example.com:9092"
}

variable "prefix" {
  type = string
}

locals {
  day  = 24 * 60 * 60 * 1000
  base = { "min.insync.replicas" = 2 }
  topics = {
    orders   = { partitions = 12, retention = 7 * local.day }
    payments = { partitions = 6, retention = -1 }
    returns  = { partitions = 3 }
  }
  readers = toset(["billing", "audit"])
}

resource "kafka_topic" "shop" {
  for_each           = local.topics
  name               = "${var.prefix}.${each.key}"
  partitions         = each.value.partitions
  replication_factor = 3

  config = merge(local.base, {
    "retention.ms"   = lookup(each.value, "retention", 30 * local.day)
    "cleanup.policy" = each.value.partitions > 6 ? "compact" : "delete"
  })

  lifecycle {
    prevent_destroy = true
    ignore_changes  = [partitions]
  }
}

resource "kafka_topic" "numbered" {
  count              = 2
  name               = format("audit-%02d", count.index)
  partitions         = 1
  replication_factor = 3
}

resource "kafka_topic" "east" {
  provider           = kafka.east
  name               = "clicks"
  partitions         = 24
  replication_factor = 1
  config = {
    "segment.bytes"    = "134217728"
    "compression.type" = data.external.compression.result
  }
}

resource "kafka_topic" "unknown" {
  for_each           = data.http.topics.names
  name               = each.key
  partitions         = 1
  replication_factor = 1
}

module "more" {
  source = "./more"
}
