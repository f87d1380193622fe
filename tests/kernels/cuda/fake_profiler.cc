// What NVTX takes for a profiler: writes down the ranges that it is told of.
#include <nvtx3/nvToolsExt.h>

#include <string>

namespace {

std::string& Seen() {
  static std::string seen;
  return seen;
}

nvtxDomainHandle_t CreateDomain(const char* name) {
  Seen() += std::string("domain ") + name + ";";
  return reinterpret_cast<nvtxDomainHandle_t>(&Seen());
}
int Push(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  Seen() += std::string("push ") + event->message.ascii + ";";
  return 0;
}
int Pop(nvtxDomainHandle_t) {
  Seen() += "pop;";
  return 0;
}

template <typename Function>
void Set(NvtxFunctionTable table, int id, Function function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" const char* SeenRanges() { return Seen().c_str(); }

extern "C" int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(
      get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) {
    return 0;
  }
  Set(table, NVTX_CBID_CORE2_DomainCreateA, CreateDomain);
  Set(table, NVTX_CBID_CORE2_DomainRangePushEx, Push);
  Set(table, NVTX_CBID_CORE2_DomainRangePop, Pop);
  return 1;
}
