#include <sys/resource.h>
#include <flatshard/core/error.hpp>

#include <atomic>
#include <thread>

#include "host_kernels.hpp"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

using namespace flatshard_test;

TEST_CASE("host device: what it is asked to be") {
  HostOptions options;
  options.form = StreamForm::Threaded;
  options.threads = 2;
  options.instruction_set = InstructionSet::Baseline;
  HostDevice device(options);
  CHECK(device.kind() == DeviceKind::Host);
  CHECK(device.name() == "host");
  CHECK(device.instruction_set() == InstructionSet::Baseline);
  CHECK(HostDevice().instruction_set() == best_instruction_set());
  { Buffer buffer(device.memory(), 1000); }
  CHECK(device.memory().high_water() == 1000);
  CHECK(device.memory().allocated() == 0);
}

TEST_CASE("host device: the form of its streams, and a compute stream in the calling thread") {
  for (StreamForm form : {StreamForm::Inline, StreamForm::Threaded}) {
    HostOptions options;
    options.form = form;
    HostDevice device(options);
    const auto thread_of = [](Stream& stream) {
      std::thread::id id;
      host_stream(stream).enqueue([&id] { id = std::this_thread::get_id(); });
      stream.synchronize();
      return id;
    };
    const auto own = std::this_thread::get_id();
    CHECK((thread_of(*device.make_stream()) == own) == (form == StreamForm::Inline));
    CHECK(thread_of(*device.make_compute_stream()) == own);
    CHECK(device.make_event()->is_complete());
  }
}

TEST_CASE("host device: impossible options are refused with their numbers") {
  HostOptions options;
  options.threads = 0;
  CHECK_THROWS_WITH_AS(HostDevice{options}, doctest::Contains("0 threads"), UsageError);
  options.threads = 1;
  for (auto set : {InstructionSet::Avx2, InstructionSet::Avx512}) {
    options.instruction_set = set;
    if (is_available(set)) continue;
    CHECK_THROWS_WITH_AS(HostDevice{options}, doctest::Contains(std::string(name_of(set)).c_str()),
                         UsageError);
  }
}

#if defined(__SSE2__)
namespace {

/// Flush to zero, denormals are zero, round down: while it lives.
class UserControl {
 public:
  explicit UserControl(bool changed) : saved_(_mm_getcsr()) {
    if (changed) _mm_setcsr(control);
  }
  ~UserControl() { _mm_setcsr(saved_); }
  static constexpr unsigned control = 0xbfc0;
  static constexpr unsigned sticky = 0x3f;  // flags that any operation may set

 private:
  unsigned saved_;
};

/// Everything that kernels compute from `elements`; device and calls under the user's control.
std::vector<std::byte> results_under(bool changed, const std::vector<std::byte>& elements,
                                     HostOptions options) {
  const auto count = static_cast<Elements>(elements.size() / 4);
  std::vector<std::byte> sum(elements.size()), narrow(elements.size() / 2);
  double squares[2] = {};
  const std::vector<const void*> sources(3, elements.data());
  const std::vector<NormNode> nodes{{0, count, 19}, {0, 3, 2}};
  const std::vector<NormAdd> adds{{0, 1}};
  {
    const UserControl control(changed);
    HostDevice device(options);
    const auto stream = device.make_stream();
    const KernelTable& kernels = device.kernels();
    kernels.reduce(sources, DType::Float32, sum.data(), DType::Float32, count, *stream);
    kernels.cast(elements.data(), DType::Float32, narrow.data(), DType::Float16, count, *stream);
    kernels.square_sums(elements.data(), DType::Float32, nodes, squares, *stream);
    kernels.add_nodes(adds, squares, *stream);
    stream->synchronize();
    if (changed) CHECK((_mm_getcsr() & ~control.sticky) == (control.control & ~control.sticky));
  }
  sum.insert(sum.end(), narrow.begin(), narrow.end());
  const auto* bytes = reinterpret_cast<const std::byte*>(squares);
  sum.insert(sum.end(), bytes, bytes + sizeof squares);
  return sum;
}

}  // namespace

TEST_CASE("host kernels work with default floating-point control and leave the user's alone") {
  auto random = generator();
  auto elements = random_finite(random, DType::Float32, 300000);
  for (Elements i = 0; i < 300000; i += 2)  // half of them denormal
    set_value(elements.data(), DType::Float32, i, std::ldexp(double(random() >> 40), -149));
  for (InstructionSet set : available_sets())
    for (int threads : {1, 3})
      for (StreamForm form : {StreamForm::Inline, StreamForm::Threaded}) {
        HostOptions options;
        options.form = form;
        options.threads = threads;
        options.instruction_set = set;
        CHECK(results_under(false, elements, options) == results_under(true, elements, options));
      }
}
#endif

TEST_CASE("host kernels: several threads may use one device at once") {
  HostOptions options;
  options.threads = 3;
  HostDevice device(options);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      constexpr Elements count = 150000;
      std::vector<float> values(count, static_cast<float>(t + 1)), copy(count);
      for (int round = 0; round < 20; ++round) {
        std::fill(copy.begin(), copy.end(), 0.0F);
        run_on(device, [&](const KernelTable& kernels, StreamRef stream) {
          kernels.add(values.data(), DType::Float32, copy.data(), DType::Float32, count, stream);
          kernels.add(values.data(), DType::Float32, copy.data(), DType::Float32, count, stream);
        });
        for (float value : copy) wrong += value != static_cast<float>(2 * (t + 1));
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("fill: initial values by canonical index do not depend on threads or cuts") {
  const Initializer normal = init::normal{0.02, seed()};
  constexpr Elements count = 100003, start = (Elements{1} << 32) - 1000;
  std::vector<float> expected(count);
  for (Elements i = 0; i < count; ++i) {
    const double value = std::get<init::normal>(normal).value(start + i);
    expected[static_cast<std::size_t>(i)] = static_cast<float>(value);
  }
  for (const NamedDevice& named : devices()) {
    std::vector<float> values(count);
    run_on(*named.device, [&](const KernelTable& kernels, StreamRef stream) {
      kernels.fill(normal, DType::Float32, values.data(), start, count, stream);
      CHECK_THROWS_AS(
          kernels.fill(init::normal{-1, 0}, DType::Float32, values.data(), 0, 1, stream),
          UsageError);
    });
    CHECK(values == expected);
  }
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FLATSHARD_TEST_NEEDS_ADDRESSES  // sanitizers map terabytes
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FLATSHARD_TEST_NEEDS_ADDRESSES
#endif
#ifndef FLATSHARD_TEST_NEEDS_ADDRESSES
TEST_CASE("threads that the system does not have are an Error, and those that ran are joined") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  rlimit small = before;
  small.rlim_cur = rlim_t{4} << 30;  // bytes of addresses: for some stacks
  REQUIRE(setrlimit(RLIMIT_AS, &small) == 0);
  HostOptions options;
  options.threads = 4096;
  std::string message;
  try {
    HostDevice device(options);
  } catch (const Error& error) {
    message = error.what();
  }
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(message.find("cannot start thread") != std::string::npos);
}
#endif
