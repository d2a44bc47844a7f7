"""The broker is a doorbell: a message says only "there is work", and losing one costs seconds, never a run."""
