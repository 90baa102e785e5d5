"""Messages that say how a row of a database changed: Debezium, Maxwell, plain JSON under a key.

`change` has what a reader gives, `registry` all formats; each is a module with `read_change`: `debezium`,
`flattened_debezium`, `maxwell`, `keyed_json`. What they are made of: `connect_message` and `connect_schema`
(the JSON of Kafka Connect), `column_type` and `column_value` (its types and values), `untyped_row` (JSON
without types), `envelope` (what stands around a row), `message_key` and `header_key`, `source_position`,
`unavailable`. `schema_change` says where a value goes whose type is not its column's.
"""
