#include <flatshard/core/error.hpp>
#include <flatshard/layout/model.hpp>
#include <flatshard/ops/host_device.hpp>
#include <flatshard/tensor/dlpack.hpp>

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

namespace flatshard::dlpack {
namespace {

/// What UsageError the act throws.
template <class Act>
std::string refused(Act&& act) {
  try {
    act();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing";
}

bool says(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

/// A tensor as another library would make it; counts how often it is given back.
struct Foreign {
  std::vector<float> values = std::vector<float>(24, 1.0F);
  std::vector<std::int64_t> shape{2, 3}, strides{3, 1};
  int given_back = 0;
  DLManagedTensorVersioned tensor = {};

  Foreign() {
    tensor.dl_tensor = {values.data(), {}, 2, {2, 32, 1}, shape.data(), strides.data(), 0};
    tensor.manager_ctx = this;
    tensor.deleter = [](DLManagedTensorVersioned* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->given_back;
    };
  }
};

TEST_CASE("every dtype has a DLDataType of its size, and comes back from it") {
  for (const DTypeInfo& row : dtype_table) {
    const DLDataType type = data_type_of(row.dtype);
    CHECK(type.bits == 8 * row.bytes);
    CHECK(type.lanes == 1);
    CHECK(dtype_from(type) == row.dtype);
    CHECK(row.floating == (type.code != 0 && type.code != 1 && type.code != 6));
  }
  CHECK_FALSE(dtype_from({5, 64, 1}).has_value());  // complex
  CHECK_FALSE(dtype_from({2, 32, 4}).has_value());  // vectors
}

TEST_CASE("an exported tensor shares memory and keeps alive what it was given") {
  const auto owner = std::make_shared<std::vector<float>>(std::vector<float>{0, 1, 2, 3, 4, 5});
  const std::array<std::int64_t, 3> shape{1, 2, 3};
  const TensorRef<float> view(owner->data(), shape);
  Exported exported = export_memory(memory_of(view, {}), owner);
  CHECK(owner.use_count() == 2);
  const DLTensor& tensor = exported->dl_tensor;
  CHECK(tensor.data == owner->data());
  CHECK(tensor.device == DLDevice{DeviceType::Cpu, 0});
  CHECK(tensor.ndim == 3);
  CHECK(tensor.dtype == DLDataType{2, 32, 1});
  CHECK(std::vector(tensor.shape, tensor.shape + 3) == std::vector<std::int64_t>{1, 2, 3});
  CHECK(std::vector(tensor.strides, tensor.strides + 3) == std::vector<std::int64_t>{6, 3, 1});
  CHECK(tensor.byte_offset == 0);
  CHECK(exported->version.major == 1);
  CHECK(exported->flags == 0);
  DLManagedTensorVersioned* given = exported.release();
  CHECK(owner.use_count() == 2);
  given->deleter(given);
  CHECK(owner.use_count() == 1);
}

TEST_CASE("const elements are flagged, which the old version cannot") {
  const std::vector<float> values(4);
  const std::array<std::int64_t, 1> shape{4};
  const Memory memory = memory_of(TensorRef<const float>(values.data(), shape), {});
  CHECK(export_memory(memory, nullptr)->flags == read_only);
  CHECK(says(refused([&] { export_unversioned(memory, nullptr); }), "read-only"));
}

TEST_CASE("what is exported is imported as it was: scalars, empty tensors, both versions") {
  std::vector<double> values{1, 2, 3, 4, 5, 6};
  for (const Shape& shape : {Shape{}, Shape{6}, Shape{2, 3}, Shape{0, 4}, Shape{3, 0}}) {
    const TensorRef<double> view(values.data(), shape);
    for (const bool versioned : {true, false}) {
      const Memory memory = memory_of(view, {});
      Imported imported = versioned ? Imported(export_memory(memory, nullptr).release())
                                    : Imported(export_unversioned(memory, nullptr).release());
      CHECK_FALSE(imported.is_read_only());
      const TensorRef<double> back = imported.view<double>();
      CHECK(back.data() == values.data());
      CHECK(Shape(back.shape().begin(), back.shape().end()) == shape);
    }
  }
}

TEST_CASE("an imported tensor is given back once, also when it is moved or refused") {
  Foreign foreign;
  {
    Imported imported(&foreign.tensor);
    const Imported moved = std::move(imported);
    moved.view<float>()[5] = 7;
    CHECK(foreign.given_back == 0);
  }
  CHECK(foreign.given_back == 1);
  CHECK(foreign.values[5] == 7);
  foreign.tensor.version.major = 2;
  CHECK(says(refused([&] { Imported{&foreign.tensor}; }), "version 2.0"));
  CHECK(foreign.given_back == 2);
  foreign.tensor.version.major = 1;
  foreign.shape[1] = -3;
  CHECK(says(refused([&] { Imported{&foreign.tensor}; }), "dimension 1 is -3"));
  CHECK(foreign.given_back == 3);
  foreign.tensor.deleter = nullptr;  // nothing to give back
  foreign.shape[1] = 3;
  CHECK(Imported(&foreign.tensor).view<float>().numel() == 6);
  CHECK(says(refused([] { Imported{static_cast<DLManagedTensor*>(nullptr)}; }), "no tensor"));
}

TEST_CASE("device, dtype, strides, alignment and const are checked") {
  Foreign foreign;
  const Imported imported(&foreign.tensor);
  const auto view = [&] { return refused([&] { imported.view<float>(); }); };
  DLTensor& tensor = foreign.tensor.dl_tensor;
  CHECK(view() == "nothing");
  CHECK(says(refused([&] { imported.view<float>({DeviceType::Cuda, 1}); }), "1:0"));
  CHECK(says(refused([&] { imported.view<double>(); }), "float32, not float64"));
  tensor.dtype = {5, 64, 1};
  CHECK(says(view(), "code 5, 64 bits, 1 lanes, not float32"));
  tensor.dtype = {2, 32, 1};

  foreign.strides = {1, 2};
  CHECK(says(view(), "row-major"));
  foreign.strides = {4, 1};
  CHECK(says(view(), "row-major"));
  foreign.shape = {1, 3};  // one row: its stride means nothing
  CHECK(view() == "nothing");
  foreign.shape = {2, 0};  // no elements
  CHECK(view() == "nothing");
  foreign.shape = {2, 3};
  tensor.strides = nullptr;
  CHECK(view() == "nothing");

  tensor.byte_offset = 8;
  CHECK(imported.view<float>().data() == foreign.values.data() + 2);
  tensor.byte_offset = 2;
  CHECK(says(view(), "no multiple of 4 bytes"));
  tensor.data = nullptr;
  CHECK(says(view(), "no address"));
  foreign.shape = {std::int64_t{1} << 62, 0};
  CHECK(imported.view<float>().data() == nullptr);
}

TEST_CASE("a read-only tensor is had as const") {
  Foreign foreign;
  foreign.tensor.flags = read_only;
  const Imported imported(&foreign.tensor);
  CHECK(imported.is_read_only());
  CHECK(says(refused([&] { imported.view<float>(); }), "const"));
  CHECK(imported.view<const float>()[0] == 1);
}

TEST_CASE("a host device's memory is the processor's") {
  const HostDevice device;
  CHECK(device_of(device) == DLDevice{DeviceType::Cpu, 0});
}

}  // namespace
}  // namespace flatshard::dlpack
