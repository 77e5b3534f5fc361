//! Bytes of a number, beside the peer's.

use tfhe::prelude::*;
use tfhe::safe_serialization::safe_serialized_size;
use tfhe::shortint::parameters::COMP_PARAM_MESSAGE_2_CARRY_2_KS_PBS_TUNIFORM_2M128;
use tfhe::{
    CompressedCiphertextListBuilder, CompressedFheUint16, ConfigBuilder, FheUint16, generate_keys,
    set_server_key,
};
use toroid_bench_common::Error;
use toroid_tfhe::column::{ColumnForm, column_bytes};
use toroid_tfhe::params::ParamSet;

use crate::row::{Part, Row};

/// The peer.
pub const PEER: &str = "tfhe-rs 1.8.2";
/// Numbers in the peer's compressed list: four of its GLWE samples.
const LISTED: u16 = 128;

/// Bytes that the peer's ciphertexts of a number of 16 bits take.
struct Peer {
    plain: f64,
    seeded: f64,
    /// A number's share of a list.
    listed: f64,
}

impl Peer {
    fn measure() -> Result<Peer, Error> {
        eprintln!("measuring ciphertexts of {PEER} …");
        let config = ConfigBuilder::default()
            .enable_compression(COMP_PARAM_MESSAGE_2_CARRY_2_KS_PBS_TUNIFORM_2M128)
            .build();
        let (client, server) = generate_keys(config);
        let seeded = CompressedFheUint16::try_encrypt(40_000_u16, &client)?;
        let plain = FheUint16::try_encrypt(40_000_u16, &client)?;
        set_server_key(server);
        let mut list = CompressedCiphertextListBuilder::new();
        for number in 0..LISTED {
            list.push(FheUint16::try_encrypt(number, &client)?);
        }
        let list = list.build()?;
        let last: Option<FheUint16> = list.get(usize::from(LISTED) - 1)?;
        let last: Option<u16> = last.map(|number| number.decrypt(&client));
        if last != Some(LISTED - 1) {
            return Err(format!("the last number of the peer's list is {last:?}").into());
        }
        Ok(Peer {
            plain: safe_serialized_size(&plain)? as f64,
            seeded: safe_serialized_size(&seeded)? as f64,
            listed: safe_serialized_size(&list)? as f64 / f64::from(LISTED),
        })
    }
}

/// The rows of sizes of a column of `count` numbers.
pub fn measure(params: &ParamSet, count: u64) -> Result<Vec<Row>, Error> {
    let peer = Peer::measure()?;
    let bytes = |form| -> Result<f64, Error> { Ok(column_bytes(params, form, count)? as f64) };
    let seeded = bytes(ColumnForm::Seeded)?;
    let mut rows = vec![
        Row::new(Part::Sizes, "column, seeded", seeded / 1e6, "MB").at_most(32.0),
        Row::new(
            Part::Sizes,
            "number, seeded",
            seeded / count as f64,
            "bytes",
        )
        .beside("`CompressedFheUint16`: a seed and the bodies", peer.seeded),
    ];
    if params.is_wide() {
        let packed = bytes(ColumnForm::Packed)?;
        let listed = format!("`CompressedCiphertextList` of {LISTED} `FheUint16`");
        rows.push(Row::new(Part::Sizes, "column, packed", packed / 1e6, "MB").at_most(64.0));
        let row = Row::new(
            Part::Sizes,
            "number, packed",
            packed / count as f64,
            "bytes",
        );
        rows.push(row.beside(listed, peer.listed).at_most(16.0));
    }
    let expanded = bytes(ColumnForm::Expanded)? / count as f64;
    let row = Row::new(Part::Sizes, "number, expanded", expanded, "bytes");
    rows.push(row.beside("`FheUint16`", peer.plain));
    Ok(rows)
}
