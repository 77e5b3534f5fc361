//! The middleware a user programs against: blobs, keys, programs, samples and sessions.
