"""Messages whose schemas stand in a schema registry: Confluent's wire format, with Avro, Protobuf or JSON
Schema.

`schema_registry` turns such a message into what Kafka Connect's JSON converter writes: its schema beside its
payload. So all that reads that form reads these messages too. `avro`, `protobuf` and `json_schema` do it for
one kind of schema each; `connect_form` has what they share, `registry_client` asks the registry.
"""
