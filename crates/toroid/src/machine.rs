//! What this machine is, for the figures that are printed with it.

/// Peak resident memory of this process in MiB, where the system tells.
pub fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

/// The processor's name, its cores in use, and the kernels that run on it.
pub fn describe() -> String {
    let name = std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    format!(
        "{name}, {} threads, {} kernels",
        rayon::current_num_threads(),
        toroid_ring::simd::SimdLevel::best()
    )
}
