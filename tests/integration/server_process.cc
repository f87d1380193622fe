#include "tests/integration/server_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/integration/http_get.h"

namespace attendant::testing {
namespace {

// " name=value " of the start line.
std::string ValueOf(const std::string& line, const std::string& name) {
  const size_t at = line.find(" " + name + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 2;
  return line.substr(begin, line.find(' ', begin) - begin);
}

// In the child, between fork and exec.
void Apply(const ProcessSetting& setting) {
  if (setting.most_descriptors == 0) return;
  const rlimit limit{setting.most_descriptors, setting.most_descriptors};
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<char*> Pointers(std::vector<std::string>* words) {
  std::vector<char*> pointers;
  for (std::string& word : *words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ServerProcess::ServerProcess(const std::vector<std::string>& flags,
                             const ProcessSetting& setting) {
  std::vector<std::string> words = setting.command;
  if (words.empty()) words = {ATTENDANT_SERVER_BINARY};
  words.insert(words.end(), {"--listen=127.0.0.1:0", "--http=127.0.0.1:0"});
  words.insert(words.end(), flags.begin(), flags.end());
  const std::vector<char*> arguments = Pointers(&words);
  std::vector<std::string> variables = setting.environment;
  for (char** one = environ; *one != nullptr; ++one) variables.push_back(*one);
  const std::vector<char*> environment = Pointers(&variables);
  int ends[2];
  stderr_ = setting.stderr_path.empty()
                ? ::memfd_create("server-log", MFD_CLOEXEC)
                : ::open(setting.stderr_path.c_str(), O_RDWR | O_CLOEXEC);
  if (stderr_ < 0 || ::pipe2(ends, O_CLOEXEC) != 0) return;
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(stderr_, STDERR_FILENO);
    Apply(setting);
    ::execvpe(arguments[0], arguments.data(), environment.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  stdout_ = ends[0];
  for (char c; ::read(stdout_, &c, 1) == 1 && c != '\n';) start_line_ += c;
  grpc_ = ValueOf(start_line_, "grpc");
  http_ = ValueOf(start_line_, "http");
}

ServerProcess::~ServerProcess() {
  if (pid_ > 0) {
    Signal(SIGKILL);
    Wait();
  }
  if (stdout_ >= 0) ::close(stdout_);
  if (stderr_ >= 0) ::close(stderr_);
}

void ServerProcess::Signal(int signal) const { ::kill(pid_, signal); }

int ServerProcess::Wait() {
  int status = 0;
  if (::waitpid(pid_, &status, 0) != pid_) return -1;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string ServerProcess::Log() const {
  std::string log;
  char buffer[4096];
  for (ssize_t n; (n = ::pread(stderr_, buffer, sizeof(buffer),
                               static_cast<off_t>(log.size()))) > 0;) {
    log.append(buffer, static_cast<size_t>(n));
  }
  return log;
}

int64_t ServerProcess::ResidentBytes() const {
  std::ifstream statm("/proc/" + std::to_string(pid_) + "/statm");
  int64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

int64_t ServerProcess::PeakResidentBytes() const {
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  constexpr char kName[] = "VmHWM:";
  for (std::string word; status >> word;) {
    int64_t kilobytes = 0;
    if (word == kName && status >> kilobytes) return kilobytes << 10;
  }
  return -1;
}

int64_t ServerProcess::OpenDescriptors() const {
  std::error_code error;
  return std::distance(std::filesystem::directory_iterator(
                           "/proc/" + std::to_string(pid_) + "/fd", error),
                       {});
}

std::string ServerProcess::Metrics() const {
  const std::string answer = HttpAsk(http_, "GET /metrics");
  const size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

double SampleOf(const std::string& text, const std::string& sample) {
  const std::string all = "\n" + text;
  const size_t at = all.find("\n" + sample + " ");
  if (at == std::string::npos) return -1;
  return std::atof(all.c_str() + at + sample.size() + 2);
}

}  // namespace attendant::testing
