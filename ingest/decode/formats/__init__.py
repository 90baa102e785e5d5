"""The formats in which records come: one noun, one file.

`registry` has all of them. What they are made of lies beside them: `batch_format` and `text_line` say what a
format consists of; `json_object`, `protobuf` and `rejected_record` are used by several.
"""
