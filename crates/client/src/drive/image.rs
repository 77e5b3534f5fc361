//! Drives in this process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toroid_drive::image::{self, FormatOptions, Image, ImageError, Replacement};
use toroid_drive::{Computational, ComputationalConfig, DriveConfig};
use toroid_engine::backend::cpu::CpuBackend;
use toroid_nvme::Controller;
use toroid_tfhe::arithmetic::ArithmeticKind;

use super::link::Local;
use super::{CLUSTER_BYTES, Drive, DriveError, OpenOptions};
use crate::location::{Location, is_block_device};

impl DriveError {
    /// The error of the image at `path`, which it names.
    #[must_use]
    pub fn of_image(path: &Path, source: ImageError) -> DriveError {
        match source {
            ImageError::Io { .. } | ImageError::Locked { .. } | ImageError::NotAFile { .. } => {
                DriveError::ImageFile(source)
            }
            source => DriveError::Image {
                path: path.to_owned(),
                source,
            },
        }
    }
}

pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Local, DriveError> {
    let opened = if options.read_only {
        Image::open_read_only(path)
    } else {
        Image::open(path)
    };
    let image = opened.map_err(|source| DriveError::of_image(path, source))?;
    let backend = match &options.backend {
        Some(backend) => Arc::clone(backend),
        None => Arc::new(CpuBackend::new(ArithmeticKind::Fft)),
    };
    match toroid_drive::Drive::open(image, DriveConfig::new(backend)) {
        Ok(drive) => local(drive),
        Err(source) => Err(DriveError::Start {
            path: path.to_owned(),
            source,
        }),
    }
}

fn local(drive: toroid_drive::Drive) -> Result<Local, DriveError> {
    let drive = Arc::new(drive);
    let inner = Arc::clone(&drive) as Arc<dyn Controller>;
    let attached = Computational::new(ComputationalConfig::default())
        .and_then(|computational| computational.attach(inner, drive.own_controller()));
    Ok(Local {
        controller: Arc::new(attached?),
        drive,
    })
}

impl Drive {
    /// Makes an image with an empty blob store, and opens it.
    ///
    /// # Errors
    /// Those of [`create_image`](super::create_image) and of [`Drive::open`].
    pub fn create(path: impl AsRef<Path>, options: FormatOptions) -> Result<Drive, DriveError> {
        let path = path.as_ref();
        create(path, options)?;
        Drive::open(Location::Image(path.to_owned()))
    }

    /// Opens a drive on a fresh image, which is removed with it: for trials and tests.
    ///
    /// # Errors
    /// [`DriveError`].
    pub fn temporary() -> Result<Drive, DriveError> {
        Drive::temporary_with(&OpenOptions::new())
    }

    pub(crate) fn temporary_with(options: &OpenOptions) -> Result<Drive, DriveError> {
        let folder =
            tempfile::tempdir().map_err(failed("make an image in", &std::env::temp_dir()))?;
        let path = folder.path().join("drive.img");
        create(&path, FormatOptions::default())?;
        let drive = options.open(Location::Image(path))?;
        Ok(Drive {
            _folder: Some(folder),
            ..drive
        })
    }
}

/// An image with an empty blob store, which has not yet taken the place of the one that was there. Dropped before that, it goes, and the former one is as
/// it was. A block device has room for one alone, so that there the former one is lost once this is made.
pub struct NewImage {
    path: PathBuf,
    /// Where it was made, if a file was there.
    replacement: Option<Replacement>,
    /// Whether it goes when this is dropped: a file where none was.
    goes: bool,
}

impl NewImage {
    /// Makes an image for `path`.
    ///
    /// # Errors
    /// [`DriveError`]; what was there stays as it was.
    pub fn make(path: &Path, mut options: FormatOptions) -> Result<NewImage, DriveError> {
        options.cluster_blocks = (CLUSTER_BYTES / u64::from(options.block_size)) as u32;
        let device = is_block_device(path);
        let mut new = NewImage {
            path: path.to_owned(),
            replacement: None,
            goes: false,
        };
        if device || !(options.overwrite && path.exists()) {
            let made = make(path, &options, path);
            // One without a blob store is of no use to anybody, and in the way of the next try.
            new.goes = !device && matches!(made, Ok(()) | Err(DriveError::Format { .. }));
            made?;
        } else {
            let replacement =
                Replacement::of(path).map_err(|source| DriveError::of_image(path, source))?;
            make(replacement.path(), &options, path)?;
            new.replacement = Some(replacement);
        }
        Ok(new)
    }

    /// Puts it in its place.
    ///
    /// # Errors
    /// [`DriveError::ImageFile`]; the former image is then still there, unless only its folder could not be made durable.
    pub fn place(mut self) -> Result<(), DriveError> {
        self.goes = false;
        match self.replacement.take() {
            Some(replacement) => replacement
                .place()
                .map_err(|source| DriveError::of_image(&self.path, source)),
            None => Ok(()),
        }
    }
}

impl Drop for NewImage {
    fn drop(&mut self) {
        if self.goes {
            // Who finds it there can tell that it is empty.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Makes an image with an empty blob store. An existing file is replaced only by a complete image.
///
/// # Errors
/// [`DriveError`]; the file that was there stays as it was.
pub fn create(path: &Path, options: FormatOptions) -> Result<(), DriveError> {
    NewImage::make(path, options)?.place()
}

/// Makes an image and its blob store; errors name the file `shown`.
fn make(path: &Path, options: &FormatOptions, shown: &Path) -> Result<(), DriveError> {
    image::format(path, options)
        .map_err(|source| DriveError::of_image(shown, source.named(shown)))?;
    let location = Location::Image(path.to_owned());
    match OpenOptions::new().format(location, true) {
        Ok(drive) => drive.close(),
        Err(DriveError::Format { source, .. }) => Err(DriveError::Format {
            location: Location::Image(shown.to_owned()),
            source,
        }),
        Err(error) => Err(error),
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DriveError {
    let path = path.to_owned();
    move |source| DriveError::File {
        action,
        path,
        source,
    }
}
