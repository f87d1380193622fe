#include "server/access/transport_security.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <optional>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/access/file_text.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

namespace tls = grpc::experimental;

absl::StatusOr<std::string> ReadPem(const std::string& flag,
                                    const std::string& path) {
  std::optional<std::string> text = FileText(path);
  if (!text.has_value() || text->find("-----BEGIN ") == std::string::npos) {
    return InvalidField(flag, path, "a readable PEM file");
  }
  return *std::move(text);
}

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;

Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())),
             BIO_free);
}

bool BelongTogether(const std::string& certificate, const std::string& key) {
  const Bio certificate_bio = BioOf(certificate), key_bio = BioOf(key);
  const std::unique_ptr<X509, decltype(&X509_free)> x509(
      PEM_read_bio_X509(certificate_bio.get(), nullptr, nullptr, nullptr),
      X509_free);
  char no_passphrase[] = "";
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> pkey(
      PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, no_passphrase),
      EVP_PKEY_free);
  return x509 != nullptr && pkey != nullptr &&
         X509_check_private_key(x509.get(), pkey.get()) == 1;
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTlsCredentials(
    const TlsOptions& options) {
  ASSIGN_OR_RETURN(const std::string certificate,
                   ReadPem("--tls_cert", options.certificate));
  ASSIGN_OR_RETURN(const std::string key, ReadPem("--tls_key", options.key));
  if (!options.client_ca.empty()) {
    RETURN_IF_ERROR(ReadPem("--tls_client_ca", options.client_ca).status());
  }
  if (!BelongTogether(certificate, key)) {
    // The provider would only fail every handshake.
    return InvalidField("--tls_key", options.key,
                        "the unencrypted key of --tls_cert's certificate");
  }
  auto provider = std::make_shared<tls::FileWatcherCertificateProvider>(
      options.key, options.certificate, options.client_ca,
      static_cast<unsigned int>(options.refresh_seconds));
  tls::TlsServerCredentialsOptions credentials(provider);
  credentials.watch_identity_key_cert_pairs();
  if (!options.client_ca.empty()) {
    credentials.watch_root_certs();
    credentials.set_cert_request_type(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return tls::TlsServerCredentials(credentials);
}

}  // namespace attendant::server
