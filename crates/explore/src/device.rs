//! The devices that settings are for.

use toroid_cores::technology::Technology;

/// What there is of each resource, and what a setting takes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Amounts {
    /// Look-up tables, those that are memories and shift registers among them. Of six inputs, on ECP5 of four.
    pub lut: f64,
    /// Flip-flops.
    pub ff: f64,
    /// Block memories of 36 Kbit; one of 18 Kbit is a half.
    pub bram36: f64,
    /// DSP slices; on ECP5 multipliers of 18 x 18 bits.
    pub dsp: f64,
}

impl Amounts {
    /// With their names.
    pub fn named(&self) -> [(&'static str, f64); 4] {
        [
            ("LUT", self.lut),
            ("FF", self.ff),
            ("BRAM36", self.bram36),
            ("DSP", self.dsp),
        ]
    }

    /// The resources of which there is less than `wanted`, with the shares of it that would be taken.
    pub fn exceeded_by(&self, wanted: &Amounts) -> Vec<(&'static str, f64)> {
        let pairs = self.named().into_iter().zip(wanted.named());
        pairs
            .filter(|((_, there), (_, wanted))| wanted > there)
            .map(|((name, there), (_, wanted))| (name, wanted / there))
            .collect()
    }
}

/// A device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name, as `--device` takes it.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// What cores are mapped to for it.
    pub technology: Technology,
    /// What there is on it.
    pub amounts: Amounts,
    /// UltraRAM blocks of 288 Kbit, which the cores do not use.
    pub uram: u64,
    /// The clock that is assumed where none is given, in MHz.
    pub clock_mhz: f64,
    /// Where the figures are from.
    pub source: &'static str,
}

const fn amounts(lut: u32, ff: u32, bram36: u32, dsp: u32) -> Amounts {
    Amounts {
        lut: lut as f64,
        ff: ff as f64,
        bram36: bram36 as f64,
        dsp: dsp as f64,
    }
}

/// The clock that is assumed for Xilinx devices: that of the papers' engines.
const XILINX_MHZ: f64 = 200.0;

/// The clock that is assumed for ECP5: what nextpnr gives for the cores' arithmetic, rounded down.
const ECP5_MHZ: f64 = 100.0;

const DS180: &str = "AMD DS180, 7 Series FPGAs Data Sheet: Overview";
const DS890: &str = "AMD DS890, UltraScale Architecture and Product Data Sheet: Overview";

/// Every device.
pub static DEVICES: &[Device] = &[
    Device {
        name: "xc7vx690t",
        title: "AMD Virtex-7 XC7VX690T",
        technology: Technology::Xc7,
        amounts: amounts(433_200, 866_400, 1_470, 3_600),
        uram: 0,
        clock_mhz: XILINX_MHZ,
        source: DS180,
    },
    Device {
        name: "xc7vx980t",
        title: "AMD Virtex-7 XC7VX980T",
        technology: Technology::Xc7,
        amounts: amounts(612_000, 1_224_000, 1_500, 3_600),
        uram: 0,
        clock_mhz: XILINX_MHZ,
        source: DS180,
    },
    Device {
        name: "xcvu47p",
        title: "AMD Virtex UltraScale+ HBM XCVU47P",
        technology: Technology::Xc7,
        amounts: amounts(1_303_680, 2_607_360, 2_016, 9_024),
        uram: 960,
        clock_mhz: XILINX_MHZ,
        source: DS890,
    },
    Device {
        name: "xcu250",
        title: "AMD Alveo U250, XCU250",
        technology: Technology::Xc7,
        amounts: amounts(1_728_000, 3_456_000, 2_688, 12_288),
        uram: 1_280,
        clock_mhz: XILINX_MHZ,
        source: "AMD DS962, Alveo U200 and U250 Data Sheet; block memories as of the XCVU13P (DS890)",
    },
    Device {
        name: "xcu280",
        title: "AMD Alveo U280, XCU280",
        technology: Technology::Xc7,
        amounts: amounts(1_303_680, 2_607_360, 2_016, 9_024),
        uram: 960,
        clock_mhz: XILINX_MHZ,
        source: "AMD DS963, Alveo U280 Data Sheet",
    },
    Device {
        name: "xc7a200t",
        title: "AMD Artix-7 XC7A200T",
        technology: Technology::Xc7,
        amounts: amounts(134_600, 269_200, 365, 740),
        uram: 0,
        clock_mhz: XILINX_MHZ,
        source: DS180,
    },
    Device {
        name: "ecp5-85k",
        title: "Lattice ECP5 LFE5U-85F",
        technology: Technology::Ecp5,
        // 208 block memories of 18 Kbit.
        amounts: amounts(83_640, 83_640, 104, 156),
        uram: 0,
        clock_mhz: ECP5_MHZ,
        source: "Lattice FPGA-DS-02012, ECP5 and ECP5-5G Family Data Sheet",
    },
];

/// The device of this name, in capitals or not.
pub fn find(name: &str) -> Option<&'static Device> {
    DEVICES
        .iter()
        .find(|device| device.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_named_with_its_share() {
        let device = find("XC7A200T").unwrap();
        let all = device.amounts;
        assert_eq!(all.exceeded_by(&all), []);
        let wanted = Amounts {
            dsp: 2.0 * all.dsp,
            bram36: all.bram36 + 36.5,
            ..Amounts::default()
        };
        assert_eq!(all.exceeded_by(&wanted), [("BRAM36", 1.1), ("DSP", 2.0)]);
        assert!(find("xc7").is_none());
    }
}
