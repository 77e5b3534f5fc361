//! What measures a drive over NVMe/TCP on loopback: a drive that this process serves ([`loopback`]), and plain commands on it ([`load`]).

pub mod load;
pub mod loopback;
pub mod row;
