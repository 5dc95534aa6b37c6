//! `knative-operator debug`: prints what an operator does, which its Pod serves as `/debug`.

use std::io::{IsTerminal, Read};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::user_agent;
use knative_operator_shared::text::one_line;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Response, StatusCode};
use serde_json::Value;

use super::output::{self, PROGRAM};

/// Time limit of the request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of an answer in bytes. The operator limits what it shows.
const MAX_ANSWER: usize = 16 << 20;
/// Maximum length of a file with a token, or with certificates, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Name of standard input.
const STDIN: &str = "-";
/// What the command waits for, on a terminal.
const STDIN_NOTICE: &str = "reading the token from stdin; end it with Ctrl+D, or name a file with --token-file";
/// How to make the port of a Pod available, as a clause.
const PORT_FORWARD: &str = "to connect to the Pod that holds the Lease: kubectl port-forward --namespace NAMESPACE pod/HOLDER 9090, and name \
     another address with --server HOST:PORT";

/// A text is no address with a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not HOST:PORT, such as 127.0.0.1:9090, without https:// and a path")]
struct InvalidAddress(String);

/// Parses a host with a port.
fn address(text: &str) -> Result<String, InvalidAddress> {
    let is_host = |host: &str| {
        let ipv6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        ipv6.map_or(!host.is_empty() && !host.contains([':', '/', '@']), |host| host.parse::<Ipv6Addr>().is_ok())
    };
    let port = text.rsplit_once(':').filter(|(host, _)| is_host(host)).and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_some_and(|port| port > 0) { Ok(text.to_owned()) } else { Err(InvalidAddress(text.to_owned())) }
}

/// Flags of `debug`.
#[derive(Clone, Debug, clap::Args)]
pub struct DebugArgs {
    /// Address of the port for metrics of a Pod, such as that of a kubectl port-forward.
    #[arg(long, default_value = "127.0.0.1:9090", value_name = "HOST:PORT", value_parser = address)]
    server: String,
    /// Name in the certificate of the Pod, which has the namespace of the operator.
    #[arg(long, default_value = "operator-webhook.knative-operator.svc", value_name = "NAME")]
    server_name: String,
    /// File with the authority of that certificate, in PEM.
    #[arg(long, value_name = "FILE")]
    ca_file: PathBuf,
    /// File with the token of a ServiceAccount that may read metrics; or - for stdin.
    #[arg(long, default_value = STDIN, value_name = "FILE")]
    token_file: PathBuf,
}

/// Prints what the operator does. Exit status: 0 printed, 2 error.
pub fn run(args: &DebugArgs) -> ExitCode {
    output::run(execute(args))
}

async fn execute(args: &DebugArgs) -> Result<ExitCode, String> {
    let DebugArgs { server, server_name, ca_file, token_file } = args;
    let unusable = |error: reqwest::Error| format!("{}: {}", ca_file.display(), error_text(&error));
    let authorities = Certificate::from_pem_bundle(&read(ca_file)?).map_err(unusable)?;
    if authorities.is_empty() {
        return Err(format!("{} has no certificate", ca_file.display()));
    }
    if let Some(notice) = notice(token_file, std::io::stdin().is_terminal()) {
        output::report(notice);
    }
    let token = String::from_utf8(read(token_file)?).map_err(|_| format!("{} is no text", token_file.display()))?;
    let unreachable = |why: String| format!("cannot reach {server}: {why}; {PORT_FORWARD}");
    let addresses = tokio::net::lookup_host(server).await.map_err(|error| unreachable(error.to_string()))?;
    let addresses: Vec<_> = addresses.collect();
    let port = addresses.first().ok_or_else(|| unreachable("it has no address".to_owned()))?.port();
    let client = Client::builder()
        .user_agent(user_agent(PROGRAM))
        .tls_certs_only(authorities)
        .resolve_to_addrs(server_name, &addresses)
        // What the variables of the environment name would get the token.
        .no_proxy()
        .redirect(Policy::none())
        .timeout(TIMEOUT)
        .build()
        .map_err(|error| error_text(&error))?;
    let request = client.get(format!("https://{server_name}:{port}/debug")).bearer_auth(token.trim());
    let response = request.send().await.map_err(|error| unreachable(error_text(&error.without_url())))?;
    let status = response.status();
    let body = body(response).await.map_err(|why| format!("{server}: {why}"))?;
    if status != StatusCode::OK {
        return Err(refused(status, &body));
    }
    let report: Value = serde_json::from_slice(&body).map_err(|error| format!("{server} answers no JSON: {error}"))?;
    Ok(output::print_data(&format!("{report:#}\n")))
}

/// What the command waits for, if it reads the token at `path` from a terminal.
fn notice(path: &Path, is_terminal: bool) -> Option<&'static str> {
    (path.as_os_str() == STDIN && is_terminal).then_some(STDIN_NOTICE)
}

/// The file at `path`, or standard input.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mut content = Vec::new();
    let input: Box<dyn Read> = if path.as_os_str() == STDIN {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(failed)?)
    };
    input.take(MAX_FILE).read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}

async fn body(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| error_text(&error.without_url()))? {
        if body.len() + part.len() > MAX_ANSWER {
            return Err(format!("the answer is longer than {MAX_ANSWER} bytes"));
        }
        body.extend_from_slice(&part);
    }
    Ok(body)
}

/// Why there is no report, and what to do.
fn refused(status: StatusCode, body: &[u8]) -> String {
    if status == StatusCode::NOT_FOUND {
        return "the operator does not serve /debug; upgrade its chart with metrics.secure=true,metrics.debug=true"
            .to_owned();
    }
    let text = String::from_utf8_lossy(body);
    format!("{status}: {}", one_line(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_says_what_to_do() {
        assert!(refused(StatusCode::NOT_FOUND, b"").contains("metrics.debug=true"));
        let text = b"the user needs the verb get for /metrics: ClusterRole knative-operator-metrics-reader\n";
        assert_eq!(
            refused(StatusCode::FORBIDDEN, text),
            "403 Forbidden: the user needs the verb get for /metrics: ClusterRole knative-operator-metrics-reader"
        );
    }

    #[test]
    fn notice_says_what_the_command_waits_for_on_a_terminal() {
        let (stdin, file) = (Path::new("-"), Path::new("token"));
        assert!(notice(stdin, true).is_some_and(|text| text.contains("stdin") && text.contains("--token-file")));
        assert_eq!([notice(stdin, false), notice(file, true)], [None, None]);
    }

    #[test]
    fn server_is_a_host_with_a_port() {
        for text in ["127.0.0.1:9090", "localhost:1", "pod.example.com:65535", "[::1]:9090"] {
            assert_eq!(address(text).as_deref(), Ok(text));
        }
        for text in
            ["", "127.0.0.1", ":9090", "a:0", "a:65536", "https://a:9090", "a:9090/debug", "::1", "[a]:1", "u@a:1"]
        {
            assert_eq!(address(text), Err(InvalidAddress(text.to_owned())));
        }
    }

    #[test]
    fn token_is_read_from_a_file_only_to_its_limit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![b'x'; (MAX_FILE + 7).try_into().unwrap()]).unwrap();
        assert_eq!(read(file.path()).unwrap().len() as u64, MAX_FILE);
        let missing = read(Path::new("/nowhere/token")).unwrap_err();
        assert!(missing.starts_with("cannot read /nowhere/token: "), "{missing}");
    }
}
