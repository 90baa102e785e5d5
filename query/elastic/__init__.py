"""The part of Elasticsearch's API that log tools use, as questions to the search."""
