#include <flatshard/core/cuda_device.hpp>

#include "cuda_stream.hpp"

namespace flatshard {

namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { detail::ignore_cuda(cudaGraphDestroy(graph)); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

/// Ends the capture whatever happens; what `issue` throws goes first.
Graph captured(cudaStream_t stream, const std::function<void()>& issue) {
  cudaGraph_t graph = nullptr;
  // Relaxed: the first use of something may allocate, in this thread or another.
  FLATSHARD_CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  try {
    issue();
  } catch (...) {
    detail::ignore_cuda(cudaStreamEndCapture(stream, &graph));
    if (graph != nullptr) detail::ignore_cuda(cudaGraphDestroy(graph));
    throw;
  }
  FLATSHARD_CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  return Graph(graph);
}

}  // namespace

CudaGraph CudaGraph::capture(StreamRef stream, const std::function<void()>& issue) {
  const Graph graph = captured(static_cast<cudaStream_t>(cuda_stream(stream)), issue);
  cudaGraphExec_t executable = nullptr;
  FLATSHARD_CHECK_CUDA(cudaGraphInstantiate(&executable, graph.get(), 0));
  return CudaGraph(executable);
}

CudaGraph::~CudaGraph() {
  if (executable_ != nullptr)
    detail::ignore_cuda(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_)));
}

void CudaGraph::launch(StreamRef stream) {
  FLATSHARD_CHECK_CUDA(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_),
                                       static_cast<cudaStream_t>(cuda_stream(stream))));
}

}  // namespace flatshard
