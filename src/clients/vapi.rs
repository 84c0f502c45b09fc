//! vCenter over REST: sessions and tags.
