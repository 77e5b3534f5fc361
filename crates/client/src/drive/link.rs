//! The ways to a drive: one implementation of [`Link`] for each.

use std::sync::Arc;

use futures::future::BoxFuture;
use toroid_nvme::Controller;
use toroid_nvme::fabrics::RemoteController;
use toroid_nvme::tcp::Address;

use super::DriveError;
#[cfg(target_os = "linux")]
use crate::block_device::BlockDeviceController;

/// A way to a drive.
pub(super) trait Link: Send + Sync {
    fn controller(&self) -> Arc<dyn Controller>;

    /// The newest failure that the drive has logged: its count and its reason.
    fn newest_failure(&self) -> BoxFuture<'_, Option<(u64, String)>> {
        let newest = self.controller().errors().into_iter().next();
        Box::pin(async { newest.map(|entry| (entry.count, entry.reason)) })
    }

    /// Asks the drive to give up the commands that it works on.
    fn cancel(&self);

    /// Ends the drive's work and makes everything durable.
    fn close(&self) -> Result<(), DriveError> {
        Ok(())
    }

    /// The drive itself where it is in this process.
    #[cfg(feature = "image")]
    fn image(&self) -> Option<&Arc<toroid_drive::Drive>> {
        None
    }
}

/// In this process, with the namespaces through which programs run on columns.
#[cfg(feature = "image")]
pub(super) struct Local {
    pub drive: Arc<toroid_drive::Drive>,
    pub controller: Arc<toroid_drive::ComputationalController>,
}

#[cfg(feature = "image")]
impl Link for Local {
    fn controller(&self) -> Arc<dyn Controller> {
        Arc::clone(&self.controller) as Arc<dyn Controller>
    }

    fn cancel(&self) {
        self.drive.cancel_all();
    }

    fn close(&self) -> Result<(), DriveError> {
        Ok(self.drive.shutdown()?)
    }

    fn image(&self) -> Option<&Arc<toroid_drive::Drive>> {
        Some(&self.drive)
    }
}

/// Over NVMe/TCP.
pub(super) struct Remote {
    pub controller: Arc<RemoteController>,
    pub address: Address,
}

impl Link for Remote {
    fn controller(&self) -> Arc<dyn Controller> {
        Arc::clone(&self.controller) as Arc<dyn Controller>
    }

    fn newest_failure(&self) -> BoxFuture<'_, Option<(u64, String)>> {
        Box::pin(async {
            if !self.controller.is_connected() {
                let reason = format!("the connection to {} has ended", self.address);
                return Some((u64::MAX, reason));
            }
            // A controller of another make has no such page.
            let reasons = self.controller.reasons().await.ok()?;
            let (count, _, reason) = reasons.into_iter().next()?;
            Some((count, reason))
        })
    }

    /// The drive aborts the commands of a connection that ends.
    fn cancel(&self) {
        self.controller.disconnect();
    }
}

#[cfg(target_os = "linux")]
impl Link for Arc<BlockDeviceController> {
    fn controller(&self) -> Arc<dyn Controller> {
        Arc::clone(self) as Arc<dyn Controller>
    }

    /// The kernel aborts nothing: the command in progress ends by itself.
    fn cancel(&self) {}
}
