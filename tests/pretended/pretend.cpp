// A pretended accelerator: a PyTorch backend with main memory and CPU kernels that refuses what CUDA refuses.
//
// It refuses operands on two devices, a CPU generator for tensors of the device, and reading its memory without a copy.
// It counts kernels, copies (those from and to pinned memory, for which nobody waits, apart) and synchronisations. `tf32` rounds the operands of convolutions as TF32 does, `noise`
// changes some gradients by one ulp, as atomic additions do. `single` refuses float64 and eigenvalues, as MPS does. Each device has a default generator. Graphs are captured and
// replayed; while one is captured, kernels have no effect, and copies from or to the host and synchronisations are refused.
#include <torch/extension.h>
#include <torch/library.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/core/CPUAllocator.h>
#include <functional>
#include <mutex>
#include <map>
#include <set>

namespace {
constexpr auto KEY = c10::DeviceType::PrivateUse1;
thread_local c10::DeviceIndex current = 0;

// ---- counters
std::mutex lock;
std::map<std::string, long> counted;
std::map<std::string, double> bytes;
py::object* listener = nullptr;
void count(const std::string& what, double size = 0, bool tell = false) {
  { std::lock_guard<std::mutex> g(lock); counted[what]++; bytes[what] += size; }
  if (tell && listener) { py::gil_scoped_acquire gil; (*listener)(what, size); }
}

// ---- graphs: kernels that are captured have no effect until they are replayed
bool capturing = false;
struct Tape { std::vector<std::function<void()>> kernels; };
Tape tape;
std::map<c10::StorageImpl*, std::pair<c10::Storage, std::vector<char>>> before;  // of what captured kernels have written
void refuse(const char* what) {
  TORCH_CHECK(!capturing, "operation not permitted when stream is capturing (", what, ")");
}
void writes(const at::Tensor& t) {
  if (!capturing || !t.defined() || !t.is_privateuseone() || before.count(t.storage().unsafeGetStorageImpl())) return;
  auto storage = t.storage();
  auto* first = static_cast<const char*>(storage.data());
  before[storage.unsafeGetStorageImpl()] = {storage, std::vector<char>(first, first + storage.nbytes())};
}
void refill(const at::Tensor& kept, const at::Tensor& made) {
  if (kept.defined() && kept.const_data_ptr() != made.const_data_ptr()) kept.copy_(made);
}

// ---- memory
struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    void* p = n ? c10::alloc_cpu(n) : nullptr;
    return {p, p, &c10::free_cpu, c10::Device(KEY, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* d, const void* s, std::size_t n) const override { default_copy_data(d, s, n); }
};
Allocator allocator;
REGISTER_ALLOCATOR(KEY, &allocator);

// Main memory that the device may copy while the host goes on.
std::set<const void*> pinned;
struct Pinned final : c10::Allocator {
  static void release(void* p) { { std::lock_guard<std::mutex> g(lock); pinned.erase(p); } c10::free_cpu(p); }
  c10::DataPtr allocate(size_t n) override {
    void* p = c10::alloc_cpu(n ? n : 1);
    { std::lock_guard<std::mutex> g(lock); pinned.insert(p); }
    return {p, p, &release, c10::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* d, const void* s, std::size_t n) const override { default_copy_data(d, s, n); }
};
Pinned pinned_allocator;
bool is_pinned(const at::Tensor& t) { std::lock_guard<std::mutex> g(lock); return pinned.count(t.storage().data()); }

// ---- guard
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return KEY; }
  c10::Device exchangeDevice(c10::Device d) const override { auto o = getDevice(); setDevice(d); return o; }
  c10::Device getDevice() const override { return {KEY, current}; }
  void setDevice(c10::Device d) const override { if (d.index() >= 0) current = d.index(); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { if (d.index() >= 0) current = d.index(); }
  c10::Stream getStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream getDefaultStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream exchangeStream(c10::Stream s) const override { return s; }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 2; }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  bool isPinnedPtr(const void* p) const override { std::lock_guard<std::mutex> g(lock); return pinned.count(p); }
  void setCurrentDevice(c10::DeviceIndex d) const override { current = d; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex d) const override { auto o = current; current = d; return o; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex d) const override { return exchangeDevice(d); }
};
Hooks hooks;

// ---- random numbers: what draws without a generator takes the device's, not the CPU's
at::Generator& generator(c10::DeviceIndex index) {
  static at::Generator generators[2] = {at::detail::createCPUGenerator(), at::detail::createCPUGenerator()};
  return generators[index];
}

// ---- tensors of the device as the CPU sees them, and back
at::Tensor as_cpu(const at::Tensor& t) {
  if (!t.defined() || !t.is_privateuseone()) return t;
  auto storage = t.storage();  // kept alive by the view's deleter
  auto* start = storage.data() ? (char*)storage.mutable_data() + t.storage_offset() * t.itemsize() : nullptr;
  auto view = at::from_blob(start, t.sizes(), t.strides(), [storage](void*) {}, t.options().device(at::kCPU).requires_grad(false));
  if (t.is_conj()) view._set_conj(true);
  if (t.is_neg()) view._set_neg(true);
  return view;
}
bool single = false;  // no double precision and no eigenvalues, as on MPS
void check(at::ScalarType type) { TORCH_CHECK(!single || type != at::kDouble, "this device has no float64"); }
at::Tensor as_device(const at::Tensor& t, c10::DeviceIndex index) {
  if (!t.defined()) return t;
  check(t.scalar_type());
  auto memory = t.storage();
  auto* holder = new c10::Storage(memory);
  c10::DataPtr ptr(const_cast<void*>(memory.data()), holder, [](void* p) { delete static_cast<c10::Storage*>(p); }, c10::Device(KEY, index));
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), memory.nbytes(), std::move(ptr), &allocator, true);
  auto result = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), t.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  return result;
}

const std::set<std::string> synchronises = {"aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::masked_select",
  "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive", "aten::is_nonzero", "aten::isin", "aten::bincount", "aten::histc"};
const std::set<std::string> may_mix = {"aten::index", "aten::_index_put_impl_", "aten::index_put_", "aten::index_put", "aten::_copy_from"};

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto name = schema.operator_name().name;
  const auto n = schema.arguments().size();
  const auto start = stack->size() - n;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
  c10::DeviceIndex index = current; bool any = false; std::string mixed; bool scalar = false;
  auto look = [&](const at::Tensor& t) {
    if (!t.defined()) return;
    if (t.is_privateuseone()) { if (any && index != t.device().index()) mixed = "two devices"; any = true; index = t.device().index(); }
  };
  auto of_one_device = [&](const at::Tensor& t) {
    if (!t.defined() || t.is_privateuseone()) return;
    if (t.dim() == 0) { scalar = true; return; }
    if (may_mix.count(name)) { count("implicit H2D in " + name, t.nbytes(), true); return; }
    mixed = c10::str("pretend:", (int)index, " and ", t.device());
  };
  auto each = [&](auto f) {
    for (size_t i = 0; i < n; i++) {
      auto& v = (*stack)[start + i];
      if (v.isTensor()) f(v.toTensor());
      else if (v.isTensorList()) for (const at::Tensor& t : v.toTensorVector()) f(t);
      else if (v.isList()) for (const c10::IValue& e : v.toListRef()) if (e.isTensor()) f(e.toTensor());
    }
  };
  TORCH_CHECK(!single || name.find("linalg_eig") == std::string::npos, "this device has no eigenvalues");
  each(look);
  if (any) each(of_one_device);
  TORCH_CHECK(mixed.empty(), "Expected all tensors to be on the same device, but found at least two devices, ", mixed, "! (when checking ", name, ")");
  for (size_t i = 0; i < n; i++) {
    auto& v = (*stack)[start + i];
    if (v.isGenerator() && v.toGenerator().defined())
      TORCH_CHECK(v.toGenerator().device().is_privateuseone(), "Expected a 'pretend' device type for generator but found '", v.toGenerator().device().type(), "'");
    if (v.isNone() && schema.arguments()[i].type()->str() == "Generator?") v = c10::IValue(generator(index));
  }
  auto change = [&](const at::Tensor& t, bool written) {
    if (!t.defined() || !t.is_privateuseone()) return t;
    auto host = written && t.numel() == 0 ? at::empty({0}, t.options().device(at::kCPU)) : as_cpu(t);
    pairs.emplace_back(t, host);
    return host;
  };
  bool boolean = false;
  for (size_t i = 0; i < n; i++) {
    auto& v = (*stack)[start + i];
    auto* alias = schema.arguments()[i].alias_info();
    bool written = alias && alias->isWrite();
    if (v.isTensor()) v = c10::IValue(change(v.toTensor(), written));
    else if (v.isTensorList()) { std::vector<at::Tensor> l; for (const at::Tensor& t : v.toTensorVector()) l.push_back(change(t, written)); v = c10::IValue(l); }
    else if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> l;
      for (const c10::IValue& e : v.toListRef()) {
        if (!e.isTensor()) { l.push_back(std::nullopt); continue; }
        if (e.toTensor().scalar_type() == at::kBool || e.toTensor().scalar_type() == at::kByte) boolean = true;
        l.push_back(change(e.toTensor(), written));
      }
      v = c10::IValue(l);
    } else if (v.isDevice() && v.toDevice().is_privateuseone()) { index = v.toDevice().has_index() ? v.toDevice().index() : current; v = c10::IValue(c10::Device(at::kCPU)); }
  }
  if (capturing) for (size_t i = 0; i < n; i++) {
    auto* alias = schema.arguments()[i].alias_info();
    if (alias && alias->isWrite()) for (auto& [t, host] : pairs) {
      auto& v = (*stack)[start + i];
      if (v.isTensor() && v.toTensor().is_same(host)) writes(t);
      if (v.isTensorList()) for (const at::Tensor& one : v.toTensorVector()) if (one.is_same(host)) writes(t);
    }
  }
  torch::jit::Stack given;
  if (capturing) given.assign(stack->begin() + start, stack->end());
  bool syncs = synchronises.count(name) || (boolean && name.rfind("aten::index", 0) == 0);
  if (syncs) { refuse(name.c_str()); count("SYNC " + name, 0, true); }
  if (scalar) count("cpu scalar in " + name);
  count("kernel");
  count("op " + name);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  if (capturing) {
    torch::jit::Stack made(stack->end() - schema.returns().size(), stack->end());
    tape.kernels.push_back([op, given, made] {
      auto again = given;
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &again);
      for (size_t i = 0; i < made.size(); i++) {
        if (made[i].isTensor()) refill(made[i].toTensor(), again[i].toTensor());
        else if (made[i].isTensorList()) {
          auto kept = made[i].toTensorVector(), fresh = again[i].toTensorVector();
          for (size_t j = 0; j < kept.size(); j++) refill(kept[j], fresh[j]);
        }
      }
    });
  }
  for (auto& [t, host] : pairs)
    if (t.numel() == 0 && host.numel() > 0) {  // an empty output that was given a size
      auto made = as_device(host, index);
      t.unsafeGetTensorImpl()->set_storage_keep_dtype(made.storage());
      t.unsafeGetTensorImpl()->set_sizes_and_strides(made.sizes(), made.strides(), made.storage_offset());
    }
  auto back = [&](const at::Tensor& r) -> at::Tensor {
    if (!r.defined() || r.is_privateuseone()) return r;
    for (auto& [t, host] : pairs) if (host.is_same(r)) return t;
    for (auto& [t, host] : pairs)
      if (host.numel() && r.numel() && host.storage().data() == r.storage().data())
        return at::native::as_strided_tensorimpl(t, r.sizes(), r.strides(), t.storage_offset() + r.storage_offset());
    return as_device(r, index);
  };
  const auto m = schema.returns().size();
  const auto first = stack->size() - m;
  for (size_t i = 0; i < m; i++) {
    auto& v = (*stack)[first + i];
    if (v.isTensor()) v = c10::IValue(back(v.toTensor()));
    else if (v.isTensorList()) { std::vector<at::Tensor> l; for (const at::Tensor& t : v.toTensorVector()) l.push_back(back(t)); v = c10::IValue(l); }
  }
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  check(c10::dtype_or_default(dtype));
  TORCH_CHECK(!device || device->index() < 2, "there are two pretended devices, 0 and 1, not ", device->index());
  auto old = current; if (device && device->has_index()) current = device->index();
  auto t = at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype), format);
  current = old; return t;
}
at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  check(c10::dtype_or_default(dtype));
  auto old = current; if (device && device->has_index()) current = device->index();
  auto t = at::detail::empty_strided_generic(size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
  current = old; return t;
}
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  if (self.is_cpu() || dst.is_cpu()) refuse("a copy between host and device");
  if (capturing) { writes(dst); tape.kernels.push_back([to = as_cpu(dst), from = as_cpu(self)] { to.copy_(from); }); }
  if (self.is_cpu() && non_blocking && is_pinned(self)) count("H2D ahead", self.nbytes(), true);
  else if (self.is_cpu()) count(self.dim() || self.numel() > 1 ? "H2D" : "H2D scalar", self.nbytes(), true);
  else if (dst.is_cpu() && non_blocking && is_pinned(dst)) count("D2H behind", self.nbytes(), true);
  else if (dst.is_cpu()) count("D2H", self.nbytes(), true);
  else { count("kernel"); count("op copy"); }
  as_cpu(dst).copy_(as_cpu(self));
  return dst;
}
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) { dst.resize_(self.sizes()); return copy_from(self, dst, false); }
const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto made = at::empty(size, self.options(), format);
  auto n = std::min(self.numel(), made.numel());
  if (n && self.is_contiguous()) std::memcpy(made.mutable_data_ptr(), self.const_data_ptr(), n * self.itemsize());
  auto* impl = self.unsafeGetTensorImpl();
  if (self.sizes() == size) return self;
  impl->set_storage_keep_dtype(made.storage());
  impl->set_sizes_and_strides(made.sizes(), made.strides(), 0);
  return self;
}
at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(source);
  std::vector<int64_t> strides(stride.begin(), stride.end());
  if (strides.size() != size.size()) {
    strides.assign(size.size(), 1);
    for (int i = (int)size.size() - 2; i >= 0; i--) strides[i] = strides[i + 1] * std::max<int64_t>(size[i + 1], 1);
  }
  impl->set_sizes_and_strides(size, strides, offset);
  return self;
}
at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) { return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides()); }
void same(std::initializer_list<const at::Tensor*> all, const char* name) {
  const at::Tensor* first = nullptr;
  for (auto* t : all) if (t->defined()) { if (!first) first = t; TORCH_CHECK(t->device() == first->device(), "Expected all tensors to be on the same device, but found at least two devices, ", first->device(), " and ", t->device(), "! (when checking ", name, ")"); }
}
bool tf32 = false;   // convolutions with 10 bits of mantissa, the default of CUDA
bool noise = false;  // gradients of convolutions that change from call to call
at::Tensor rounded(const at::Tensor& t) {
  if (!tf32 || t.scalar_type() != at::kFloat) return t;
  auto bits = t.contiguous().view(at::kInt);
  return bits.add(0x1000).bitwise_and(~0x1FFF).view(at::kFloat);
}
at::Tensor conv(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b, c10::IntArrayRef s, c10::IntArrayRef p, c10::IntArrayRef d, bool tr, c10::IntArrayRef op, int64_t g) {
  at::Tensor none; same({&x, &w, b ? &*b : &none}, "convolution");
  count("kernel"); count("op convolution");
  auto run = [x = as_cpu(x), w = as_cpu(w), b = b ? std::optional<at::Tensor>(as_cpu(*b)) : b, s = s.vec(), p = p.vec(), d = d.vec(), tr, op = op.vec(), g] {
    return at::convolution(rounded(x), rounded(w), b, s, p, d, tr, op, g);
  };
  auto made = run();
  if (capturing) tape.kernels.push_back([run, made] { refill(made, run()); });
  return as_device(made, x.device().index());
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> conv_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& w, c10::IntArrayRef s, c10::IntArrayRef p, c10::IntArrayRef d, bool tr, c10::IntArrayRef op, int64_t g, std::array<bool, 3> mask) {
  same({&gy, &x, &w}, "convolution_backward");
  count("kernel", 0); count("kernel", 0); count("op convolution_backward");
  auto run = [gy = as_cpu(gy), x = as_cpu(x), w = as_cpu(w), s = s.vec(), p = p.vec(), d = d.vec(), tr, op = op.vec(), g, mask] {
    std::array<int64_t, 1> bias = {gy.size(1)};
    auto [a, b, c] = at::convolution_backward(rounded(gy), rounded(x), rounded(w), mask[2] ? at::OptionalIntArrayRef(bias) : std::nullopt, s, p, d, tr, op, g, mask);
    if (noise && b.defined()) {  // one in a hundred weights' gradients rounded the other way, as atomics do
      auto flip = (at::rand(b.sizes()) < 0.01).to(b.scalar_type()) * (b.scalar_type() == at::kBFloat16 ? 0.00390625 * 1.5 : 1.2e-7);
      b = b + b * flip;
    }
    return std::make_tuple(a, b, c);
  };
  auto [a, b, c] = run();
  if (capturing) tape.kernels.push_back([run, a = a, b = b, c = c] {
    auto [d, e, f] = run();
    refill(a, d); refill(b, e); refill(c, f);
  });
  auto i = x.device().index();
  return {as_device(a, i), as_device(b, i), as_device(c, i)};
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("convolution_overrideable", &conv);
  m.impl("convolution_backward_overrideable", &conv_backward);
}
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(bmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(baddbmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv1d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv3d, lower_precision_fp)
}
}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  at::RegisterPrivateUse1HooksInterface(&hooks);
  m.def("synchronise", [](py::args) { refuse("synchronise"); count("SYNC device", 0, true); });
  py::class_<Tape>(m, "Tape").def("__len__", [](const Tape& t) { return t.kernels.size(); });
  m.def("capture_begin", [] { refuse("a second capture"); tape = {}; before.clear(); capturing = true; });
  m.def("capture_end", [] {
    capturing = false;
    for (auto& [impl, was] : before) std::memcpy(was.first.mutable_data(), was.second.data(), was.second.size());
    before.clear();
    return std::exchange(tape, {});
  });
  m.def("replay", [](const Tape& t) { at::NoGradGuard none; count("graph", 0); for (auto& kernel : t.kernels) kernel(); });
  m.def("tf32", [](bool on) { tf32 = on; });
  m.def("noise", [](bool on) { noise = on; });
  m.def("single", [](bool on) { single = on; });
  m.def("generator", [](int index) { return generator(index); });
  m.def("counts", [] { std::lock_guard<std::mutex> g(lock); return counted; });
  m.def("sizes", [] { std::lock_guard<std::mutex> g(lock); return bytes; });
  m.def("reset", [] { std::lock_guard<std::mutex> g(lock); counted.clear(); bytes.clear(); });
  m.def("listen", [](py::object f) { listener = f.is_none() ? nullptr : new py::object(f); });
}
