//! Pure: names of steps for messages.

use std::fmt;

use super::Step;

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateMonitor { port, .. } => write!(f, "create the monitor of port {}", port.port),
            Self::ChangeMonitor { monitor, .. } => write!(f, "change {}", monitor.tags.path),
            Self::CreatePool { port, .. } => write!(f, "create the pool of port {}", port.port),
            Self::ChangePool { pool, .. } => write!(f, "change {}", pool.tags.path),
            Self::Allocate { .. } => write!(f, "reserve an address"),
            Self::Reserve { server, .. } => write!(f, "reserve the address of {}", server.tags.path),
            Self::SetAddress { server, .. } => write!(f, "set the address of {} back", server.tags.path),
            Self::ReadAddress { allocation } => write!(f, "read the address of {}", allocation.tags.path),
            Self::CreateLbService => write!(f, "create the load balancer service"),
            Self::CreateServer { port, .. } => write!(f, "create the virtual server of port {}", port.port),
            Self::ChangeServer { server, .. } => write!(f, "change {}", server.tags.path),
            Self::Read { path, .. } => write!(f, "read {path}"),
            Self::CreateGroup { .. } => write!(f, "create the group of source ranges"),
            Self::ChangeGroup { group, .. } => write!(f, "change {}", group.tags.path),
            Self::CreatePersistenceProfile { .. } => write!(f, "create the persistence profile"),
            Self::ChangePersistenceProfile { profile, .. } => write!(f, "change {}", profile.tags.path),
            Self::Tag { tags: marks, .. } => write!(f, "tag {}", marks.path),
            Self::Untag { pool } => write!(f, "remove the tag with the address of {}", pool.tags.path),
            Self::DeleteServer(server) => write!(f, "delete {}", server.tags.path),
            Self::DeletePool(pool) => write!(f, "delete {}", pool.tags.path),
            Self::DeleteMonitor(monitor) => write!(f, "delete {}", monitor.tags.path),
            Self::DeletePersistenceProfile(profile) => write!(f, "delete {}", profile.tags.path),
            Self::DeleteGroup(group) => write!(f, "delete {}", group.tags.path),
            Self::ReleaseAddress(allocation) => write!(f, "delete {}", allocation.tags.path),
            Self::PortConflict { server, .. } => write!(f, "leave {} as it is", server.tags.path),
        }
    }
}
