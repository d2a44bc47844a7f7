"""A run on several ranks: DDP or FSDP2 under torchrun, one record, one loss scale. docs/distributed.md."""
