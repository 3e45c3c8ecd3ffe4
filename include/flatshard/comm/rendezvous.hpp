// How the processes of a job find each other: over TCP, at an address that rank 0 listens on, with
// a secret that never travels.
//
// What it protects: nobody without the token joins a job, poses as rank 0, or makes a rank allocate
// more than a small frame. What it does not: what ranks say after joining, and all that NCCL sends,
// is neither encrypted nor authenticated. The network between the ranks must be trusted.
#pragma once

#include <flatshard/comm/control_channel.hpp>

#include <chrono>
#include <memory>
#include <string>

namespace flatshard {

/// Who meets whom, where.
struct RendezvousOptions {
  Rank rank = 0;                      // of the caller
  int world = 1;                      // ranks that must come
  std::string address = "127.0.0.1";  // of rank 0, a name or number of one interface: a wildcard
                                      // (0.0.0.0, ::) is refused
  int port = 29512;                   // of rank 0
  std::string token;  // the job's secret, at least 16 characters; equal on all ranks
  std::string job;    // names this start of the job: ranks of an earlier start are turned away
  std::chrono::milliseconds patience = std::chrono::seconds(120);  // for all to come
};

/// Collective over the job; blocks the host. Both sides prove that they know the token by
/// HMAC-SHA256 over job, rank, world size and both sides' random numbers. Throws UsageError for
/// options that cannot be, CommunicationError naming the ranks that did not come in time.
std::unique_ptr<ControlChannel> rendezvous(const RendezvousOptions& options);

}  // namespace flatshard
