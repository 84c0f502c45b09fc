//! node metrics
