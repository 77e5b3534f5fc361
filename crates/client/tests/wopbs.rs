//! Exact parameter sets from end to end: a session on a drive in this process, as with any other set.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::fs;
use std::sync::Arc;

use tempfile::TempDir;
use toroid_client::blob;
use toroid_client::session::{Session, SessionError};
use toroid_client::tables;
use toroid_drive::image::{self, FormatOptions, Image, MetadataMode};
use toroid_drive::{Drive, DriveConfig};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_isa::{Assembly, KeyKind, VrNumber};
use toroid_task::Progress;
use toroid_tfhe::arithmetic::ArithmeticKind;
use toroid_tfhe::encoding::Encoding;
use toroid_tfhe::keys::ClientKey;
use toroid_tfhe::noise::Noise;
use toroid_tfhe::params::TINY_WOPBS;
use toroid_tfhe::random::Csprng;

const BITS: u32 = TINY_WOPBS.message_bits;

/// Of the drive's second half and of the blob store.
const CLUSTER_BYTES: u64 = 1 << 18;

/// A drive with keys, and who made them.
struct Bench {
    folder: TempDir,
    drive: Arc<Drive>,
    session: Session,
    client: ClientKey,
    rng: Csprng,
    arithmetic: ArithmeticKind,
}

impl Bench {
    async fn new(mode: MetadataMode, arithmetic: ArithmeticKind) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let options = FormatOptions {
            size: 64 << 20,
            swap: 16 << 20,
            metadata_mode: mode,
            cluster_blocks: (CLUSTER_BYTES / 4096) as u32,
            ..FormatOptions::default()
        };
        image::format(&folder.path().join("drive.img"), &options).unwrap();
        let drive = open(&folder, arithmetic);
        let options = blob::FormatOptions {
            cluster_bytes: CLUSTER_BYTES,
            ..blob::FormatOptions::default()
        };
        let session = Session::format(drive.clone(), 1, options).await.unwrap();
        let mut rng = Csprng::from_seed([7; 32]);
        let client = ClientKey::generate(&TINY_WOPBS, &mut rng);
        for kind in [KeyKind::Bootstrapping, KeyKind::KeySwitching] {
            session
                .generate_key(0, &client, kind, &Progress::none())
                .await
                .unwrap();
        }
        Bench {
            folder,
            drive,
            session,
            client,
            rng,
            arithmetic,
        }
    }

    async fn put(&self, text: &str) -> Assembly {
        let mut assembly = toroid_isa::assemble(text).unwrap();
        tables::read_files(&mut assembly, self.folder.path()).unwrap();
        for vector in &assembly.test_vectors {
            let report = self
                .session
                .put_test_vector(&TINY_WOPBS, vector)
                .await
                .unwrap();
            assert_eq!(report.entries, 1 << report.bits.0);
        }
        self.session
            .put_program(0, &TINY_WOPBS, &assembly.program)
            .await
            .unwrap();
        assembly
    }

    async fn write(&mut self, register: &str, message: i64, encoding: Encoding) {
        let vr: VrNumber = register.parse().unwrap();
        let sample = self
            .client
            .encrypt_from(encoding, message, &mut self.rng)
            .unwrap();
        self.session.put_sample(vr, &sample).await.unwrap();
    }

    /// What stands in a register, and its noise against that of a bootstrapped sample.
    async fn result(&self, register: &str) -> (i64, f64) {
        let stored = self
            .session
            .get_sample(register.parse().unwrap())
            .await
            .unwrap();
        assert!(stored.computed);
        let result = stored.ciphertext;
        assert!(result.log2_failure() < -20.0);
        let fresh =
            Noise::encryption(&TINY_WOPBS).bootstrapped(&TINY_WOPBS, BITS, self.arithmetic, 0);
        (
            self.client.decrypt(&result).unwrap(),
            result.noise().variance().log2() - fresh.variance().log2(),
        )
    }
}

fn open(folder: &TempDir, arithmetic: ArithmeticKind) -> Arc<Drive> {
    let config = DriveConfig::new(Arc::new(CpuBackend::new(arithmetic)));
    let image = Image::open(&folder.path().join("drive.img")).unwrap();
    Arc::new(Drive::open(image, config).unwrap())
}

const MODES: [(MetadataMode, ArithmeticKind); 2] = [
    (MetadataMode::SecondHalf, ArithmeticKind::Fft),
    (MetadataMode::NvmeMetadata, ArithmeticKind::Ntt),
];

#[tokio::test]
async fn table_5_multiplies_before_and_after_a_restart() {
    for (mode, arithmetic) in MODES {
        let mut bench = Bench::new(mode, arithmetic).await;
        let signed = Encoding::new(BITS, true).unwrap();
        bench
            .put(include_str!("../../isa/examples/multiply.tasm"))
            .await;
        for (x, y) in [(15, -17), (-22, -22), (1, 254), (-128, 2), (0, -255)] {
            bench.write("cor:0:1", x, signed).await;
            bench.write("cow:0:2", y, signed).await;
            let (product, noise) = bench.result("cow:0:2").await;
            assert_eq!(product, x * y, "{x} * {y}");
            // The difference of two bootstrapped samples, less what they share.
            assert!((0.5..1.01).contains(&noise), "{noise}");
        }
        // The stored program is back in its register after a reload, and after one that was cancelled.
        for cancelled in [true, false] {
            let progress = Progress::none();
            if cancelled {
                progress.cancel_token().cancel();
            }
            let reloaded = bench.session.reload(0, false, &progress).await;
            assert_eq!(reloaded.is_err(), cancelled);
            bench.write("cor:0:1", 3, signed).await;
            bench.write("cow:0:2", -5, signed).await;
            assert_eq!(bench.result("cow:0:2").await.0, -15);
        }
        bench.drive.shutdown().unwrap();
        let Bench {
            folder,
            drive,
            session,
            client,
            rng,
            arithmetic,
        } = bench;
        drop((drive, session));
        let drive = open(&folder, arithmetic);
        let session = Session::open(drive.clone(), 1).await.unwrap();
        session.load(0, &Progress::none()).await.unwrap();
        let mut bench = Bench {
            folder,
            drive,
            session,
            client,
            rng,
            arithmetic,
        };
        bench.write("cor:0:1", -12, signed).await;
        bench.write("cow:0:2", 21, signed).await;
        assert_eq!(bench.result("cow:0:2").await.0, -12 * 21);
        // Without a stored program nothing is put into its register.
        bench
            .session
            .delete(VrNumber::program(0).unwrap())
            .await
            .unwrap();
        let reloaded = bench.session.reload(0, false, &Progress::none()).await;
        assert!(matches!(reloaded, Err(SessionError::NoStoredProgram(_))));
        bench.drive.shutdown().unwrap();
    }
}

/// Two arguments of 4 + 5 bits in one sample, two functions of it, one of them a table in a file.
#[tokio::test]
async fn functions_of_two_arguments_lists_and_files() {
    for (mode, arithmetic) in MODES {
        let mut bench = Bench::new(mode, arithmetic).await;
        let remainders: Vec<String> = (0..1 << BITS)
            .map(|m| (m & 31i64, m >> 5))
            .map(|(y, x)| if y == 0 { x } else { x % y }.to_string())
            .collect();
        let file = bench.folder.path().join("remainders.txt");
        fs::write(file, remainders.join(", ")).unwrap();
        let text = "
            .reg x = cor:1
            .reg y = cow:2
            .tv quotient unsigned in=4+5 out=4 = y == 0 ? 15 : x / y
            .tv remainder unsigned in=4+5 out=9 = file \"remainders.txt\"
            homadd x, y
            bootstrap [quotient, remainder], [x, y], x
            homadd x, y
            return x
        ";
        let assembly = bench.put(text).await;
        assert_eq!(assembly.program.bootstrap_count(), 2);
        for (x, y) in [(0, 0), (15, 0), (15, 31), (13, 5), (7, 7), (14, 1)] {
            bench
                .write("cor:0:1", x, Encoding::new(4, false).unwrap())
                .await;
            bench
                .write("cow:0:2", y, Encoding::new(BITS, false).unwrap())
                .await;
            let (quotient, remainder) = if y == 0 { (15, x) } else { (x / y, x % y) };
            let (packed, noise) = bench.result("cow:0:2").await;
            assert_eq!(packed, 32 * quotient + remainder, "{x}, {y}");
            // Two functions of one sample, in the worst case correlated.
            assert!((noise - 2.0).abs() < 0.01, "{noise}");
        }
        let runs = bench.drive.program_runs();
        assert_eq!(runs.len(), 6);
        bench.drive.shutdown().unwrap();
    }
}

/// Numbers of 3 bits, and two of 1 and 2 bits in one sample, through functions that say so.
#[tokio::test]
async fn narrow_numbers_go_through_narrow_functions() {
    for (mode, arithmetic) in MODES {
        let mut bench = Bench::new(mode, arithmetic).await;
        let narrow = Encoding::new(3, true).unwrap();
        bench
            .put(
                "
                .reg x = cow:2
                .tv square in=3 out=9 = x*x - 60
                bootstrap square, x
                return x
            ",
            )
            .await;
        for x in narrow.messages() {
            bench.write("cow:0:2", x, narrow).await;
            let (square, noise) = bench.result("cow:0:2").await;
            assert_eq!(square, x * x - 60, "{x}");
            assert!(noise.abs() < 0.01, "{noise}");
        }
        let stored = bench.session.get_sample("cow:0:2".parse().unwrap()).await;
        let failure = stored.unwrap().ciphertext.log2_failure();
        let of_width = |bits| {
            Noise::encryption(&TINY_WOPBS)
                .bootstrapped(&TINY_WOPBS, bits, arithmetic, 0)
                .log2_failure()
        };
        assert!((failure - of_width(3)).abs() < 1e-3, "{failure}");
        assert!(failure < of_width(BITS) - 1.0, "{failure}");
        bench
            .put(
                "
                .reg x = cor:1
                .reg y = cow:2
                .tv f unsigned in=1+2 out=9 = 100*x + y
                homadd x, y
                bootstrap f, x
                return x
            ",
            )
            .await;
        for (x, y) in [(0, 0), (1, 0), (0, 3), (1, 3), (1, 2)] {
            let [upper, both] = [1, 3].map(|bits| Encoding::new(bits, false).unwrap());
            bench.write("cor:0:1", x, upper).await;
            bench.write("cow:0:2", y, both).await;
            assert_eq!(bench.result("cow:0:2").await.0, 100 * x + y, "{x}, {y}");
        }
        bench.drive.shutdown().unwrap();
    }
}

#[test]
fn outputs_wider_than_the_message_are_refused_by_name() {
    let text = ".tv f unsigned in=9 out=10 = x";
    let vector = &toroid_isa::assemble(text).unwrap().test_vectors[0];
    let error = toroid_client::session::test_vector_bytes(&TINY_WOPBS, vector).unwrap_err();
    assert_eq!(error.to_string(), "test vector f");
    let reason = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        reason.contains("a message of 10 bits is too wide"),
        "{reason}"
    );
}
