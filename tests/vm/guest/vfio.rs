//! A device opened through VFIO, as a program with a driver of its own does it.

#![allow(unsafe_code)] // No crate at hand wraps these calls.

use crate::sys::attribute;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd};

// From linux/vfio.h.
const VFIO_SET_IOMMU: u64 = 0x3b66;
const VFIO_GROUP_SET_CONTAINER: u64 = 0x3b68;
const VFIO_GROUP_GET_DEVICE_FD: u64 = 0x3b6a;
const VFIO_TYPE1V2_IOMMU: u64 = 3;

/// An open device. As long as it is open, the kernel does not take it away.
pub struct Device {
    _device: File,
    _group: File,
    _container: File,
}

/// Gives the function to vfio-pci, whoever has it now.
pub fn bind(bdf: &str) {
    let device = format!("/sys/bus/pci/devices/{bdf}");
    fs::write(format!("{device}/driver_override"), "vfio-pci\n").unwrap();
    let _ = fs::write(format!("{device}/driver/unbind"), bdf);
    fs::write("/sys/bus/pci/drivers_probe", bdf).unwrap();
    let driver = fs::read_link(format!("{device}/driver")).unwrap();
    assert!(driver.ends_with("vfio-pci"), "{bdf} is at {}", driver.display());
    assert_ne!(attribute(bdf, "vendor"), "");
}

/// Opens it.
pub fn open(bdf: &str) -> Device {
    let group = fs::read_link(format!("/sys/bus/pci/devices/{bdf}/iommu_group")).unwrap();
    let open = |name: &str| OpenOptions::new().read(true).write(true).open(format!("/dev/vfio/{name}")).unwrap();
    let (container, group) = (open("vfio"), open(&group.file_name().unwrap().to_string_lossy()));
    let descriptor = container.as_raw_fd();
    call(&group, VFIO_GROUP_SET_CONTAINER, &raw const descriptor as u64);
    call(&container, VFIO_SET_IOMMU, VFIO_TYPE1V2_IOMMU);
    let name = CString::new(bdf).unwrap();
    let device = call(&group, VFIO_GROUP_GET_DEVICE_FD, name.as_ptr() as u64);
    // SAFETY: the kernel has just made this descriptor for us.
    let device = unsafe { File::from_raw_fd(device) };
    Device { _device: device, _group: group, _container: container }
}

fn call(file: &File, request: u64, argument: u64) -> i32 {
    // SAFETY: each request gets what vfio.h says: a number, or a pointer to a live int or to a text that ends with NUL.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument) };
    assert!(result >= 0, "ioctl {request:x}: {}", std::io::Error::last_os_error());
    result
}
