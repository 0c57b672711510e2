//! The Helm chart, the manifests for Kustomize, and the file for Compose.

mod chart;
mod compose;
mod configuration;
mod files;
mod kustomize;
mod monitoring;
mod page;
mod pods;
mod refused;
