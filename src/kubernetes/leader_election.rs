//! leader_election
