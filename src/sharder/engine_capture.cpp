// A step as a CUDA graph.
#include <flatshard/core/error.hpp>

#include "engine_parts.hpp"

namespace flatshard {

CudaGraph Engine::capture(const std::function<void()>& step) {
  Parts& parts = *parts_;
  detail::Runtime& runtime = parts.runtime;
  begin_state_read("capture()");
  FLATSHARD_EXPECTS(runtime.world.size() == 1,
                    "capture(): only a step of one rank can be captured");
  parts.gatherer.invalidate();  // so that the graph gathers whatever it uses
  synchronize();
  parts.stepper.begin_capture();
  const auto issue = [&] {
    runtime.order(runtime.compute, *parts.computed, runtime.gather);
    runtime.reduce.wait(*parts.computed);
    step();
    FLATSHARD_EXPECTS(parts.micro_step < 0, "capture(): the last call must be step()");
    runtime.order(runtime.gather, *parts.gathered, runtime.compute);
    runtime.order(runtime.reduce, *parts.decided, runtime.compute);
  };
  try {
    CudaGraph graph = CudaGraph::capture(runtime.compute, issue);
    parts.stepper.end_capture();
    return graph;
  } catch (...) {
    parts.stepper.end_capture();
    throw;
  }
}

std::int64_t Engine::replay(CudaGraph& captured) {
  Parts& parts = *parts_;
  detail::Runtime& runtime = parts.runtime;
  parts.expect_no_open_call("replay()");
  parts.prepare();
  FLATSHARD_EXPECTS(parts.micro_step < 0, "replay() comes between micro-steps");
  parts.gatherer.expect_released();
  parts.stepper.wait_for_earlier();
  parts.gatherer.invalidate();
  runtime.order(runtime.gather, *parts.gathered, runtime.compute);
  runtime.order(runtime.reduce, *parts.decided, runtime.compute);
  captured.launch(runtime.compute);
  runtime.order(runtime.compute, *parts.computed, runtime.reduce);
  runtime.gather.wait(*parts.computed);
  return parts.stepper.count_replay();
}

}  // namespace flatshard
