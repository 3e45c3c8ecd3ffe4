// Every kernel template beyond 2^31 elements: windows at both ends and around 2^31 against the
// host, which computes only them. Needs 45 GB of device memory.
#include <flatshard/ops/optimizer.hpp>

#include "kernels_gpu.hpp"

using namespace flatshard_test;

namespace {

constexpr Elements middle = Elements{1} << 31;
constexpr Elements count = middle + (1 << 20) + 5;
constexpr Elements window = 4096;
constexpr Elements windows[] = {0, middle - window / 2, count - window};

Initializer values(int stream, double lo = -1) {
  return init::uniform{lo, 1, seed() + static_cast<std::uint64_t>(stream)};
}

/// `count` elements on the device, filled by it.
class Large {
 public:
  explicit Large(DType dtype) : dtype_(dtype), buffer_(gpu().device.memory(), bytes(count)) {}
  Large(DType dtype, const Initializer& initializer) : Large(dtype) {
    run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
      kernels.fill(initializer, dtype, data(), 0, count, stream);
    });
  }
  std::byte* data() const { return static_cast<std::byte*>(buffer_.data()); }
  std::byte* at(Elements index) const { return data() + bytes(index); }
  std::vector<std::byte> part(Elements begin, Elements elements = window) const {
    std::vector<std::byte> part(static_cast<std::size_t>(bytes(elements)));
    gpu().device.copy(at(begin), part.data(), bytes(elements), *gpu().stream);
    gpu().stream->synchronize();
    return part;
  }
  bool equals(Elements begin, const std::vector<std::byte>& expected) const {
    const auto found = part(begin);
    return same_elements(found.data(), expected.data(), dtype_, window);
  }

 private:
  Bytes bytes(Elements elements) const { return elements * size_of(dtype_); }

  DType dtype_;
  Buffer buffer_;
};

/// What Large(dtype, initializer) holds in a window.
std::vector<std::byte> window_of(DType dtype, const Initializer& initializer, Elements begin) {
  std::vector<std::byte> elements(static_cast<std::size_t>(window * size_of(dtype)));
  fill(initializer, dtype, elements.data(), begin, window);
  return elements;
}

struct LargeStep {
  StepRow row;
  Elements canonical;
};

void check_step(const LargeStep& step) {
  const StepRow& row = step.row;
  const AdamW adamw{.lr = 0.01};
  const Large master(row.master, values(0)), gradient(row.gradient, values(1));
  const Large m(row.state, values(2)), v(row.state, values(3, 0)), copy(row.copy);
  const StepScalars scalars{0.37, 1};
  const std::int64_t time = 3;
  OnGpu gpu_scalars(DType::UInt8, bytes_of(std::vector<StepScalars>{scalars}));
  OnGpu gpu_time(DType::Int64, bytes_of(std::vector<std::int64_t>{time}));
  StepArguments arguments{};
  arguments.master = master.data();
  arguments.gradient = gradient.data();
  arguments.states = {m.data(), v.data(), nullptr};
  arguments.copy = row.writes_copy ? copy.data() : nullptr;
  arguments.count = count;
  arguments.canonical = step.canonical;
  arguments.scalars = gpu_scalars.as<const StepScalars>();
  arguments.time = gpu_time.as<const std::int64_t>();
  arguments.seed = seed();
  arguments.row = row;
  arguments.functor = Optimizer(adamw).functor();
  run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
    kernels.step(Optimizer(adamw).cuda_step(row), arguments, stream);
  });
  for (Elements begin : windows) {
    CAPTURE(begin);
    auto host_master = window_of(row.master, values(0), begin);
    auto host_gradient = window_of(row.gradient, values(1), begin);
    auto host_m = window_of(row.state, values(2), begin);
    auto host_v = window_of(row.state, values(3, 0), begin);
    auto host_copy = window_of(row.copy, values(4), begin);
    StepArguments part = arguments;
    part.master = host_master.data();
    part.gradient = host_gradient.data();
    part.states = {host_m.data(), host_v.data(), nullptr};
    part.copy = row.writes_copy ? host_copy.data() : nullptr;
    part.count = window;
    part.canonical += begin;
    part.scalars = &scalars;
    part.time = &time;
    Optimizer(adamw).host_step(row)(part);
    CHECK(master.equals(begin, host_master));
    CHECK(m.equals(begin, host_m));
    CHECK(v.equals(begin, host_v));
    if (row.writes_copy) CHECK(copy.equals(begin, host_copy));
  }
}

}  // namespace

TEST_CASE("large: fill and zero") {
  const Initializer normal = init::normal{0.02, seed()};
  const Large memory(DType::BFloat16, normal);
  for (Elements begin : windows)
    CHECK(memory.equals(begin, window_of(DType::BFloat16, normal, begin)));
  run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
    kernels.zero(memory.data(), 2 * count, stream);
  });
  for (Elements begin : windows) CHECK(memory.equals(begin, std::vector<std::byte>(2 * window)));
}

TEST_CASE("large: cast, add, reduce") {
  const Large source(DType::BFloat16, values(0)), second(DType::BFloat16, values(1));
  const Large sum(DType::Float32);
  run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
    kernels.cast(source.data(), DType::BFloat16, sum.data(), DType::Float32, count, stream);
    kernels.add(second.data(), DType::BFloat16, sum.data(), DType::Float32, count, stream);
  });
  const auto check_sum = [&](const std::vector<int>& terms) {
    for (Elements begin : windows) {
      CAPTURE(begin);
      std::vector<std::vector<std::byte>> parts;
      std::vector<const void*> sources;
      for (const int term : terms) parts.push_back(window_of(DType::BFloat16, values(term), begin));
      for (const auto& part : parts) sources.push_back(part.data());
      std::vector<std::byte> expected(4 * window);
      run_on_host([&](const KernelTable& kernels, StreamRef stream) {
        kernels.reduce(sources, DType::BFloat16, expected.data(), DType::Float32, window, stream);
      });
      CHECK(sum.equals(begin, expected));
    }
  };
  check_sum({0, 1});
  const void* first = source.data();
  const void* other = second.data();
  for (int terms : {3, 9}) {
    std::vector<const void*> sources;
    std::vector<int> streams;
    for (int k = 0; k < terms; ++k) {
      sources.push_back(k % 2 == 0 ? first : other);
      streams.push_back(k % 2);
    }
    run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
      kernels.reduce(sources, DType::BFloat16, sum.data(), DType::Float32, count, stream);
    });
    check_sum(streams);
  }
}

TEST_CASE("large: flatten and unflatten") {
  const Large tensor(DType::Float32, values(0)), flat(DType::BFloat16), back(DType::Float32);
  const Elements small = 1000;
  const std::vector<FlattenPiece> pieces{{tensor.data(), 0, small},
                                         {tensor.at(small), small, count - 2 * small},
                                         {tensor.at(count - small), count - small, small}};
  const std::vector<FlattenPiece> targets{{back.data(), 0, count - small},
                                          {back.at(count - small), count - small, small}};
  run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
    kernels.flatten(pieces, DType::Float32, flat.data(), DType::BFloat16, stream);
    kernels.unflatten(targets, flat.data(), DType::BFloat16, DType::Float32, stream);
  });
  for (Elements begin : windows) {
    CAPTURE(begin);
    const auto source = window_of(DType::Float32, values(0), begin);
    std::vector<std::byte> narrow(2 * window), wide(4 * window);
    run_on_host([&](const KernelTable& kernels, StreamRef stream) {
      kernels.cast(source.data(), DType::Float32, narrow.data(), DType::BFloat16, window, stream);
      kernels.cast(narrow.data(), DType::BFloat16, wide.data(), DType::Float32, window, stream);
    });
    CHECK(flat.equals(begin, narrow));
    CHECK(back.equals(begin, wide));
  }
}

// Zeros but for four windows that are nodes of the tree by themselves; the sum of squares is theirs
// in its order, because adding zero changes nothing.
TEST_CASE("large: norm") {
  const Large memory(DType::BFloat16, init::zeros{});
  const Elements last = middle + (1 << 20);
  const Elements places[] = {0, middle - window, middle, last - window};
  double sums[4];
  double most = 0;
  for (int k = 0; k < 4; ++k) {
    const auto part = window_of(DType::BFloat16, values(k), 0);
    gpu().device.copy(part.data(), memory.at(places[k]), 2 * window, *gpu().stream);
    gpu().stream->synchronize();
    const std::vector<NormNode> node{{0, window, 12}};
    run_on_host([&](const KernelTable& kernels, StreamRef stream) {
      double largest = 0;
      kernels.square_sums(part.data(), DType::BFloat16, node, sums + k, stream);
      kernels.absolute_maxima(part.data(), DType::BFloat16, node, &largest, stream);
      most = std::max(most, largest);
    });
  }
  const double expected = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  OnGpu square_sum(DType::Float64, 1), largest(DType::Float64, 1);
  run_on_gpu([&](const KernelTable& kernels, StreamRef stream) {
    const std::vector<NormNode> node{{0, count, 32}};
    kernels.square_sums(memory.data(), DType::BFloat16, node, square_sum.as<double>(), stream);
    kernels.absolute_maxima(memory.data(), DType::BFloat16, node, largest.as<double>(), stream);
  });
  CHECK(equals(square_sum, bytes_of(std::vector<double>{expected}), DType::Float64));
  CHECK(equals(largest, bytes_of(std::vector<double>{most}), DType::Float64));
}

TEST_CASE("large: steps, with a copy, and across canonical index 2^32 with stochastic rounding") {
  check_step({{DType::Float32, DType::Float32, DType::Float32, DType::BFloat16, true, false}, 0});
  check_step({{DType::BFloat16, DType::Float32, DType::BFloat16, DType::BFloat16, false, true},
              (Elements{1} << 32) - middle});
}
