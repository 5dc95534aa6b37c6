//! What happens to a control plane: outages, backups and restores.

use std::path::Path;

use rustix::process::Signal;

use super::{Cluster, FOLDER};
use crate::{Result, tools};

impl Cluster {
    /// Kills the API server.
    pub fn stop_apiserver(&mut self) {
        self.components.remove("kube-apiserver");
    }

    /// Starts the API server again, with the same data and address.
    pub async fn start_apiserver(&mut self) -> Result<()> {
        self.run("kube-apiserver", &self.apiserver())?;
        self.ready().await
    }

    /// Suspends etcd, as if it had no leader, or continues it.
    pub fn suspend_etcd(&self, suspended: bool) -> Result<()> {
        let etcd = self.components.get("etcd").ok_or("no etcd")?;
        etcd.signal(if suspended { Signal::STOP } else { Signal::CONT })
    }

    /// Replaces it by an empty cluster with the same address and authorities.
    pub async fn replace(&mut self) -> Result<()> {
        self.stop_components();
        std::fs::remove_dir_all(self.dir.path().join("etcd"))?;
        self.run_components().await
    }

    /// Copies the data of etcd to `folder`; the control plane is stopped meanwhile.
    pub async fn dump(&mut self, folder: &Path) -> Result<()> {
        self.stop_components();
        tools::copy(&self.dir.path().join("etcd"), folder)?;
        self.start_again().await
    }

    /// Replaces the data of etcd by those in `folder`, as an administrator restores a backup, and
    /// restarts the control plane.
    pub async fn restore(&mut self, folder: &Path) -> Result<()> {
        self.stop_components();
        std::fs::remove_dir_all(self.dir.path().join("etcd"))?;
        tools::copy(folder, &self.dir.path().join("etcd"))?;
        self.start_again().await
    }

    /// Upgrades the control plane to the binaries in `folder`, which is one of
    /// `KUBERNETES=minor tests/tools/install.sh`.
    pub async fn upgrade(&mut self, folder: &Path) -> Result<()> {
        self.binaries = Some(folder.to_owned());
        self.stop_components();
        self.start_again().await
    }

    /// Stops everything. No other test uses such a control plane.
    fn stop_components(&mut self) {
        self.start = None;
        self.components.retain(|component, _| *component == FOLDER);
    }

    async fn start_again(&mut self) -> Result<()> {
        self.run("etcd", &self.etcd())?;
        self.start_apiserver().await?;
        for (component, flags) in self.controllers()? {
            self.run(component, &flags)?;
        }
        Ok(())
    }
}
