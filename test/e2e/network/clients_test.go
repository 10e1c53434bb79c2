package network

import (
	"context"
	"fmt"
	"net/http"
	"net/http/cgi" //nolint:gosec // git's own server is one; it serves one test
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lazaret-dev/lazaret/test/e2e/harness"
)

// relay passes requests on to a real site, by the machine's own network.
func relay(t *testing.T, site string) http.Handler {
	t.Helper()
	to, err := url.Parse(site)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
}

// repository serves a repository of one commit by git's own HTTP server.
func repository(t *testing.T) http.Handler {
	t.Helper()
	root := t.TempDir()
	script := `git init -q -b main project.git; cd project.git
		git config http.receivepack true; git config receive.denyCurrentBranch ignore
		echo cloned > README; git add README
		git -c user.name=t -c user.email=t@example.org commit -qm one`
	cmd := exec.CommandContext(t.Context(), "bash", "-ceu", script)
	cmd.Dir, cmd.Env = root, []string{"PATH=/usr/bin:/bin", "HOME=" + root}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	path, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	return &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + root, "REMOTE_USER=agent"},
	}
}

// java is what podman needs to give a sandbox this machine's Java; false where the
// machine has no compiler of it.
func java() ([]string, bool) {
	path, err := exec.LookPath("javac")
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil, false
	}
	args := []string{"--volume=" + filepath.Dir(filepath.Dir(path)) + ":/opt/java:ro"}
	conf, err := filepath.Glob("/etc/java-*")
	if err != nil {
		return nil, false
	}
	for _, c := range conf { // Debian's has links there
		args = append(args, "--volume="+c+":"+c+":ro")
	}
	return args, true
}

const javaClient = `import java.net.*;
import java.net.http.*;
import java.io.*;
import java.security.*;
import java.security.cert.*;
import javax.net.ssl.*;

class Client {
	public static void main(String[] args) throws Exception {
		KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
		store.load(null, null);
		try (InputStream in = new FileInputStream("/workspace/ca.pem")) {
			store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
		}
		TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
		trust.init(store);
		SSLContext tls = SSLContext.getInstance("TLS");
		tls.init(null, trust.getTrustManagers(), null);
		HttpClient client = HttpClient.newBuilder().sslContext(tls).version(HttpClient.Version.HTTP_1_1).build();
		for (String url : args) {
			try {
				System.out.println(client.send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString()).body().trim());
			} catch (IOException e) {
				System.out.println("failed: " + e);
			}
		}
	}
}
`

// Programs that know nothing of Lazaret work through the guard with only what they
// need listed, and reach nothing else. Packages come from the real mirrors, which
// takes minutes: make clients.
func TestClients(t *testing.T) {
	if os.Getenv("LAZARET_TEST_CLIENTS") == "" {
		t.Skip("set LAZARET_TEST_CLIENTS, as make clients does")
	}
	each(t, func(t *testing.T, sandbox string) {
		w := newWorld(t)
		for _, name := range []string{"web.test", "git.test", "deb.debian.org", "registry.npmjs.org"} {
			w.name(name, "A "+web)
		}
		w.name("evil.test", "A "+bad)
		w.serves("web.test", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(rw, "hello %s %s over %s\n", r.URL.Query().Get("by"), r.Host, map[bool]string{true: "TLS", false: "HTTP"}[r.TLS != nil]) //nolint:gosec // what the client sent is the point
		}))
		w.serves("git.test", repository(t))
		w.serves("deb.debian.org", relay(t, "http://deb.debian.org"))
		w.serves("registry.npmjs.org", relay(t, "https://registry.npmjs.org"))

		p := w.place(sandbox, profile("filt", "filtered", []string{"@debian", "registry.npmjs.org:443", "git.test:443", "web.test"}, nil))
		p.WriteFile(filepath.Join(p.ws, "ca.pem"), string(w.ca.pem))
		p.WriteFile(filepath.Join(p.ws, "Client.java"), javaClient)
		args := []string{
			filt, "--env=NODE_EXTRA_CA_CERTS=/workspace/ca.pem", "--env=GIT_SSL_CAINFO=/workspace/ca.pem",
			"--env=SSL_CERT_FILE=/workspace/ca.pem", "--env=CURL_CA_BUNDLE=/workspace/ca.pem", "--env=DEBIAN_FRONTEND=noninteractive",
		}
		volumes, haveJava := java()
		p.Detached(p.ws, "c", append(append(args, volumes...), harness.Tools, "sleep", "3000")...)
		in := func(script string) harness.Result {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			return harness.Do(p.Command(ctx, "podman", "exec", "c", "bash", "-c", script))
		}
		works := func(what, want, script string) {
			t.Helper()
			start := time.Now()
			r := in("set -eu; " + script)
			if r.Code != 0 || !strings.Contains(r.Stdout, want) {
				t.Errorf("%s: status %d, %q, want %q: %.2000s", what, r.Code, r.Stdout, want, r.Stderr)
			}
			t.Logf("%s: %v", what, time.Since(start).Round(time.Millisecond))
		}
		refused := func(what, want, script string) {
			t.Helper()
			r := in(script + ` 2>&1; echo "status $?"`)
			if strings.Contains(r.Stdout, "status 0") || !strings.Contains(r.Stdout, want) {
				t.Errorf("%s: %q, want a failure with %q", what, r.Stdout, want)
			}
		}
		packages := "curl ca-certificates"
		java := "/opt/java/bin/java"
		if !haveJava { // then as an agent would get it
			packages, java = packages+" default-jdk-headless", "java"
		}
		works("apt-get", "installed", "apt-get -qq update; apt-get -qq install --no-install-recommends "+packages+" >/dev/null; curl --version >/dev/null; echo installed")
		works("npm", "2.1.3", "mkdir /tmp/p; cd /tmp/p; npm install --no-audit --no-fund ms@2.1.3 >/dev/null; node -p 'require(\"ms/package.json\").version'")
		works("git clone", "cloned", "git clone -q https://git.test/project.git /tmp/project; cat /tmp/project/README")
		works("git push", "pushed", "cd /tmp/project; git -c user.name=t -c user.email=t@example.org commit -q --allow-empty -m two; git push -q origin main; echo pushed")
		works("curl", "hello curl web.test over TLS", "curl -sS --fail 'https://web.test/?by=curl'")
		works("curl, plain", "hello curl web.test over HTTP", "curl -sS --fail 'http://web.test/?by=curl'")
		works("Python", "hello python web.test over TLS", `python3 -c 'import urllib.request as u; print(u.urlopen("https://web.test/?by=python").read().decode())'`)
		works("Node", "hello node web.test over TLS", `node -e 'fetch("https://web.test/?by=node").then(r => r.text()).then(console.log)'`)
		works("Go", "hello go web.test over TLS", "/workspace/probe get 'https://web.test/?by=go'")
		works("Java", "hello java web.test over TLS", java+" -Xint /workspace/Client.java 'https://web.test/?by=java'")

		refused("curl", "Could not resolve host", "curl -sS https://evil.test/")
		refused("curl, by an address of another", "alert", "curl -sS --resolve evil.test:443:"+web+" https://evil.test/")
		refused("curl, by address", "alert", "curl -sSk https://"+bad+"/")
		refused("curl, another port", "curl: (7)", "curl -sS http://"+bad+":8080/")
		refused("git", "Could not resolve host", "git clone https://evil.test/project.git /tmp/evil")
		refused("Python", "Name or service not known", `python3 -c 'import urllib.request as u; u.urlopen("https://evil.test/")'`)
		refused("Node", "ENOTFOUND", `node -e 'fetch("https://evil.test/").catch(e => { console.log(e.cause); process.exit(1) })'`)
		refused("Go", "no such host", "/workspace/probe get https://evil.test/")
		refused("Java", "failed: java.net.ConnectException", java+" -Xint /workspace/Client.java https://evil.test/; false")
		refused("npm", "ENOTFOUND", "cd /tmp/p; npm install --fetch-retries=0 --registry=https://evil.test/ ms@2.1.2")
		if got := w.arrived(web+":80", web+":443"); len(got) > 0 {
			t.Errorf("arrived in the world: %q", got)
		}
		if n := w.questions("evil.test"); n > 0 {
			t.Errorf("evil.test was asked for %d times", n)
		}
	})
}
