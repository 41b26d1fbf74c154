// A guard and hooks of CUDA for a PyTorch that was built without: autograd asks them for devices, streams and events.
//
// Streams and what they play are kept in Python; here all are the default one, and events do nothing.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

thread_local DeviceIndex current = 0;

DeviceIndex devices() {
  const char* text = std::getenv("FABRIC_GPUS");
  return static_cast<DeviceIndex>(text == nullptr ? 1 : std::atoi(text));
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr DeviceType static_type = DeviceType::CUDA;

  DeviceType type() const override { return static_type; }
  Device exchangeDevice(Device device) const override {
    const Device before(static_type, current);
    uncheckedSetDevice(device);
    return before;
  }
  Device getDevice() const override { return Device(static_type, current); }
  void setDevice(Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) current = device.index();
  }
  Stream getStream(Device device) const noexcept override { return Stream(Stream::DEFAULT, indexed(device)); }
  Stream getDefaultStream(Device device) const override { return getStream(device); }
  Stream getNewStream(Device device, int) const override { return getStream(device); }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return getStream(device); }
  Stream exchangeStream(Stream stream) const noexcept override { return getStream(stream.device()); }
  DeviceIndex deviceCount() const noexcept override { return devices(); }

  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}

 private:
  static Device indexed(Device device) { return Device(static_type, device.index() >= 0 ? device.index() : current); }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

namespace at {

struct AbsentGpus final : CUDAHooksInterface {
  explicit AbsentGpus(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  // All memory of the CPU is as good as pinned.
  bool isPinnedPtr(const void*) const override { return true; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::DeviceType::CPU); }
  int getNumGPUs() const override { return devices(); }
  DeviceIndex deviceCount() const override { return devices(); }
  DeviceIndex current_device() const override { return ::current; }
  DeviceIndex getCurrentDevice() const override { return ::current; }
  void setCurrentDevice(DeviceIndex index) const override { ::current = index; }
  void deviceSynchronize(DeviceIndex) const override {}
};

C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, AbsentGpus)

}  // namespace at
