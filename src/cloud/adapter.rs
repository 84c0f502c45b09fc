//! Turns `Instances` and `Zones` into `InstancesV2`.
