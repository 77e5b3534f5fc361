//! Designs that others published, to compare settings with.

use toroid_cores::ntt_elastic::PAPER as ESC_NTT;

/// A published design. What a source does not say is `None`.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Published {
    /// Its name in plots.
    pub name: &'static str,
    /// Where the figures are from.
    pub source: &'static str,
    /// The part it was measured on.
    pub platform: &'static str,
    /// The words of a transform.
    pub n: u64,
    /// The bits of the modulus.
    pub bits: u64,
    /// In MHz.
    pub clock_mhz: f64,
    /// In microseconds.
    pub latency_us: Option<f64>,
    /// Transforms a second.
    pub throughput: Option<f64>,
    /// Look-up tables.
    pub lut: Option<f64>,
    /// Flip-flops.
    pub ff: Option<f64>,
    /// Block memories of 36 Kbit.
    pub bram36: Option<f64>,
    /// DSP slices, of another vendor as the source converts them.
    pub dsp: Option<f64>,
    /// What else must be known to compare.
    pub note: &'static str,
}

/// The source of the streaming NTT's rows.
pub const STREAMING: &str = "T. Ye, Y. Yang, S. R. Kuppannagari, R. Kannan, V. K. Prasanna: FPGA Acceleration of Number Theoretic Transform";

/// A row of Table 1 of the streaming NTT's paper, which gives throughput as measured; the clock is that times N / lanes.
#[allow(clippy::too_many_arguments, reason = "a row of a table")]
const fn streaming(
    name: &'static str,
    n: u64,
    lanes: u64,
    latency_us: f64,
    throughput: f64,
    lut: f64,
    ff: f64,
    bram36: f64,
    dsp: f64,
) -> Published {
    Published {
        name,
        source: STREAMING,
        platform: "XC7VX980T",
        n,
        bits: 28,
        clock_mhz: throughput * (n / lanes) as f64 / 1e6,
        latency_us: Some(latency_us),
        throughput: Some(throughput),
        lut: Some(lut),
        ff: Some(ff),
        bram36: Some(bram36),
        dsp: Some(dsp),
        note: "Table 1, after place and route; q = 2^28 - 2^16 + 1",
    }
}

/// A row of Table 4.1 of the thesis on pipelined FFTs, which gives no throughput.
#[allow(clippy::too_many_arguments, reason = "a row of a table")]
const fn modr2(
    n: u64,
    latency_us: f64,
    lut: f64,
    ff: f64,
    bram: f64,
    dsp: f64,
    clock_mhz: f64,
) -> Published {
    Published {
        name: "Modr2",
        source: "Hardware Acceleration of Polynomial Multiplication using Pipelined FFT, thesis, University of California, Irvine",
        platform: "Artix-7",
        n,
        bits: if n > 256 { 14 } else { 13 },
        clock_mhz,
        latency_us: Some(latency_us),
        throughput: None,
        lut: Some(lut),
        ff: Some(ff),
        bram36: Some(bram),
        dsp: Some(dsp),
        note: "Table 4.1; block memories as the table counts them",
    }
}

/// Every one.
pub static PUBLISHED: &[Published] = &[
    streaming(
        "Ye 512, 32",
        512,
        32,
        0.66,
        13_750_000.0,
        82_498.0,
        89_688.0,
        64.0,
        576.0,
    ),
    streaming(
        "Ye 512, 64",
        512,
        64,
        0.57,
        26_625_000.0,
        161_703.0,
        171_472.0,
        96.0,
        1_152.0,
    ),
    streaming(
        "Ye 512, 128",
        512,
        128,
        0.60,
        43_000_000.0,
        303_040.0,
        316_920.0,
        156.0,
        2_304.0,
    ),
    streaming(
        "Ye 1024, 32",
        1024,
        32,
        0.91,
        6_781_250.0,
        94_394.0,
        104_846.0,
        80.0,
        640.0,
    ),
    streaming(
        "Ye 1024, 64",
        1024,
        64,
        0.76,
        13_125_000.0,
        187_283.0,
        204_162.0,
        128.0,
        1_280.0,
    ),
    streaming(
        "Ye 1024, 128",
        1024,
        128,
        0.82,
        20_625_000.0,
        360_765.0,
        391_945.0,
        234.0,
        2_560.0,
    ),
    streaming(
        "Ye 2048, 32",
        2048,
        32,
        1.29,
        3_390_625.0,
        107_293.0,
        120_718.0,
        96.0,
        704.0,
    ),
    streaming(
        "Ye 2048, 64",
        2048,
        64,
        1.03,
        6_468_750.0,
        212_835.0,
        237_719.0,
        160.0,
        1_408.0,
    ),
    streaming(
        "Ye 2048, 128",
        2048,
        128,
        1.18,
        9_250_000.0,
        418_214.0,
        468_230.0,
        312.0,
        2_816.0,
    ),
    Published {
        platform: "XC7VX690T",
        clock_mhz: 224.0,
        note: "Table 4, after place and route; q = 2^28 - 2^16 + 1",
        ..streaming(
            "Ye 4096, 32",
            4096,
            32,
            1.99,
            1_687_500.0,
            117_300.0,
            135_200.0,
            189.0,
            768.0,
        )
    },
    Published {
        name: "Mert",
        source: "A. C. Mert, E. Karabulut, E. Öztürk, E. Savaş, M. Becchi, A. Aysu: A flexible and scalable NTT hardware, DATE 2020",
        platform: "XC7VX690T",
        n: 1024,
        bits: 28,
        clock_mhz: 125.0,
        latency_us: Some(2.0),
        throughput: Some(500_000.0),
        lut: Some(132_000.0),
        ff: Some(59_000.0),
        bram36: Some(96.0),
        dsp: Some(448.0),
        note: "as Table 4 of Ye et al. has it",
    },
    Published {
        name: "Nejatollahi",
        source: "H. Nejatollahi, S. Shahhosseini, R. Cammarota, N. Dutt: Exploring energy efficient quantum-resistant signal processing using array processors, ICASSP 2020",
        platform: "Zynq UltraScale+",
        n: 1024,
        bits: 16,
        clock_mhz: 183.0,
        latency_us: Some(101.84),
        throughput: Some(98_193.0),
        lut: Some(3_000.0),
        ff: Some(3_000.0),
        bram36: Some(29.0),
        dsp: Some(58.0),
        note: "as Table 4 of Ye et al. has it, throughput an upper bound",
    },
    Published {
        name: "HEAX",
        source: "M. S. Riazi, K. Laine, B. Pelton, W. Dai: HEAX, an architecture for computing on encrypted data, ASPLOS 2020",
        platform: "Intel FPGA, extrapolated to XC7VX690T",
        n: 4096,
        bits: 28,
        clock_mhz: 300.0,
        latency_us: Some(2.56),
        throughput: Some(390_625.0),
        lut: None,
        ff: None,
        bram36: None,
        dsp: Some(320.0),
        note: "extrapolated in Table 4 of Ye et al. from 52 bits and 32 butterflies",
    },
    Published {
        name: "ESC-NTT",
        source: "Z. Guan et al.: ESC-NTT, an elastic, seamless and compact architecture for multi-parameter NTT acceleration",
        platform: "Alveo U280",
        n: 4096,
        bits: 64,
        clock_mhz: 300.0,
        latency_us: Some(3.813),
        throughput: Some(1_171_875.0),
        lut: Some(ESC_NTT.lut),
        ff: Some(ESC_NTT.ff),
        bram36: Some(ESC_NTT.ramb36),
        dsp: Some(ESC_NTT.dsp),
        note: "any modulus of 64 bits, changed at run time, twiddles streamed in; 1237.5 KB of block memory",
    },
    Published {
        name: "NVMe platform",
        source: "the NVMe secure computing platform's paper, appendix A",
        platform: "XCVU47P",
        n: 16384,
        bits: 64,
        clock_mhz: 200.0,
        latency_us: Some(35.84),
        throughput: Some(55_803.6),
        lut: None,
        ff: None,
        bram36: None,
        dsp: None,
        note: "a pair of transforms in 7168 cycles on 32 butterflies, words loaded and unloaded not counted; resources are given for the whole engine only",
    },
    modr2(64, 1.54, 4_440.0, 3_389.0, 4.0, 35.0, 137.93),
    modr2(128, 2.62, 4_861.0, 5_650.0, 41.0, 40.0, 152.93),
    modr2(256, 4.75, 5_771.0, 6_586.0, 46.0, 45.0, 154.04),
    modr2(512, 9.49, 6_789.0, 7_559.0, 52.0, 54.0, 145.48),
    modr2(1024, 17.89, 7_760.0, 8_566.0, 57.0, 55.0, 149.34),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_and_figures_are_of_one_measurement() {
        for design in PUBLISHED {
            assert!((90.0..=350.0).contains(&design.clock_mhz), "{design:?}");
            assert!(design.n.is_power_of_two());
            if let (Some(latency), Some(throughput)) = (design.latency_us, design.throughput) {
                // Nobody has more than a few hundred transforms on their way.
                assert!(
                    (0.9..300.0).contains(&(latency * throughput / 1e6)),
                    "{design:?}"
                );
            }
        }
    }
}
