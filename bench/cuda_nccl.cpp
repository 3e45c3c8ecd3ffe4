// Collectives over NCCL, one rank per GPU, as threads of this process: ours beside NCCL's own.
// Bytes are those that each rank receives from others ("bus bytes"); times are of one
// call, medians over 15 times ten in a row, between two events; "host" is the time that issuing one
// takes.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <flatshard/comm/nccl.hpp>
#include <flatshard/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

using namespace flatshard;

namespace {

constexpr int repetitions = 15;
constexpr int calls = 10;  // in a row, per timing

struct Times {
  double device = 0;  // seconds
  double host = 0;    // seconds
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void expect(cudaError_t error) {
  if (error != cudaSuccess) throw Error(cudaGetErrorString(error));
}

Times measure(Communicator& comm, Stream& stream, const std::function<void()>& issue) {
  const auto native = static_cast<cudaStream_t>(cuda_stream(stream));
  cudaEvent_t begin, end;
  expect(cudaEventCreate(&begin));
  expect(cudaEventCreate(&end));
  std::vector<double> device, host;
  for (int i = -3; i < repetitions; ++i) {
    comm.synchronize();
    expect(cudaEventRecord(begin, native));
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) issue();
    const std::chrono::duration<double> issuing = std::chrono::steady_clock::now() - start;
    expect(cudaEventRecord(end, native));
    stream.synchronize();
    float milliseconds = 0;
    expect(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i < 0) continue;  // warm-up
    device.push_back(static_cast<double>(milliseconds) / 1e3 / calls);
    host.push_back(issuing.count() / calls);
  }
  expect(cudaEventDestroy(begin));
  expect(cudaEventDestroy(end));
  return {median(device), median(host)};
}

void print(Communicator& comm, const char* name, Bytes whole, const Times& times, Bytes bus) {
  if (comm.rank() == 0)
    std::printf("%-44s %6lld MiB  %9.1f us  %7.1f GB/s  host %6.1f us\n", name,
                static_cast<long long>(whole >> 20), times.device * 1e6,
                static_cast<double>(bus) / times.device / 1e9, times.host * 1e6);
}

/// NCCL's own communicator beside ours, for its own reductions.
ncclComm_t own_communicator(Communicator& comm) {
  static ncclUniqueId id;
  if (comm.rank() == 0) ncclGetUniqueId(&id);
  comm.synchronize();
  ncclComm_t own = nullptr;
  if (ncclCommInitRank(&own, comm.size(), id, comm.rank()) != ncclSuccess)
    throw Error("ncclCommInitRank failed");
  return own;
}

void run(Communicator& comm) {
  Device& device = *comm.device();
  const auto stream = device.make_stream();
  const auto native = static_cast<cudaStream_t>(cuda_stream(*stream));
  const ncclComm_t own = own_communicator(comm);
  const Buffer send(device.memory(), Bytes{1} << 30), receive(device.memory(), Bytes{1} << 30);
  expect(cudaMemsetAsync(send.data(), 0, std::size_t{1} << 30, native));
  for (const Bytes whole :
       {Bytes{1} << 22, Bytes{1} << 24, Bytes{1} << 26, Bytes{1} << 28, Bytes{1} << 30}) {
    const Bytes others = whole / comm.size() * (comm.size() - 1);
    const Elements slice = whole / 2 / comm.size();  // bf16
    print(comm, "all_gather bf16", whole,
          measure(comm, *stream,
                  [&] {
                    comm.all_gather("gather", send.data(), receive.data(), slice, DType::BFloat16,
                                    *stream);
                  }),
          others);
    print(comm, "reduce_scatter bf16 to fp32, tree", whole,
          measure(comm, *stream,
                  [&] {
                    comm.reduce_scatter("scatter", send.data(), receive.data(), slice,
                                        DType::BFloat16, DType::Float32, *stream);
                  }),
          others);
    print(comm, "ncclReduceScatter bf16 to bf16", whole,
          measure(comm, *stream,
                  [&] {
                    ncclReduceScatter(send.data(), receive.data(), static_cast<std::size_t>(slice),
                                      ncclBfloat16, ncclSum, own, native);
                  }),
          others);
    print(comm, "reduce_scatter fp32, tree", whole,
          measure(comm, *stream,
                  [&] {
                    comm.reduce_scatter("scatter", send.data(), receive.data(), slice / 2,
                                        DType::Float32, DType::Float32, *stream);
                  }),
          others);
    print(comm, "ncclReduceScatter fp32", whole,
          measure(comm, *stream,
                  [&] {
                    ncclReduceScatter(send.data(), receive.data(),
                                      static_cast<std::size_t>(slice / 2), ncclFloat32, ncclSum,
                                      own, native);
                  }),
          others);
  }
  ncclCommDestroy(own);
}

}  // namespace

int main() {
  const int ranks = std::min(cuda_device_count(), 8);
  if (ranks < 2) {
    std::puts("skipped: needs two CUDA devices");
    return 77;
  }
  NcclWorld(ranks).run(run);
}
