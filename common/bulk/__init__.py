"""Tables of texts to sound files or parquet, shard by shard: what is finished stays when a run is killed."""
