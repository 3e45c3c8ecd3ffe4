// Makes the kernel refuse a system call to this process, as a sandbox does.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <exception>
#include <iostream>

namespace refused_calls {

/// From now on `call` fails with `code` in all threads of this process; cannot be undone. False:
/// the kernel does not allow it.
inline bool refuse(long call, int code) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(code)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog all = {sizeof program / sizeof *program, program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &all) == 0;
}

/// What act() returns, in a process of its own: 0 to 99; 100 when it throws, 200 + n when signal n
/// ended it.
template <class Act>
int in_child(Act act) {
  std::cout.flush();  // or the child has it, too
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 100;
    try {
      status = act();
    } catch (const std::exception&) {
      // Told by the status.
    }
    ::_exit(status);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFSIGNALED(status) ? 200 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace refused_calls
