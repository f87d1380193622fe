# Writes OUTPUT, a C++ source that holds the files of INPUTS (a list of names in
# FOLDER) as text: cmake -DOUTPUT=... -DFOLDER=... -DINPUTS=a;b -P embed.cmake
set(rows "")
foreach(name IN LISTS INPUTS)
  file(READ ${FOLDER}/${name} text)
  string(FIND "${text}" ")ASSET\"" clash)
  if(NOT clash EQUAL -1)
    message(FATAL_ERROR "${name} holds the end mark of a raw string")
  endif()
  string(APPEND rows "    {\"${name}\", R\"ASSET(${text})ASSET\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Generated from server/statusz/.
#include \"server/monitoring/status_assets.h\"

namespace attendant::server {

const std::vector<StatusAsset>& StatusAssets() {
  static const std::vector<StatusAsset> assets = {
${rows}  };
  return assets;
}

}  // namespace attendant::server
")
