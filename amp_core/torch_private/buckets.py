"""What a communication hook of `DistributedDataParallel` gets; apart, because not every torch is built with it."""

from torch._C._distributed_c10d import GradBucket as GradBucket
