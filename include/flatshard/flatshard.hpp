// Every public header, nothing else.
#pragma once

#include <flatshard/comm/communicator.hpp>
#include <flatshard/comm/threads.hpp>
#include <flatshard/ops/host_device.hpp>
#include <flatshard/policy/aliases.hpp>
#include <flatshard/sharder/sharder.hpp>
