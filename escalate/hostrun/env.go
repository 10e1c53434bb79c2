package hostrun

import (
	"strings"

	"github.com/lazaret-dev/lazaret/escalate/policy"
	"github.com/lazaret-dev/lazaret/internal/wire"
)

// denied names the variables with which a program, a loader, an interpreter or a
// helper of theirs could be turned into another: "*" at an end stands for
// anything. Credentials and where to find them (SSH_AUTH_SOCK, AWS_PROFILE,
// KUBECONFIG) stay: they are why a command is asked for on the host.
func denied() []string {
	return strings.Fields(`
		LD_* DYLD_* GLIBC_TUNABLES MALLOC_* GCONV_PATH LOCPATH NLSPATH HOSTALIASES LOCALDOMAIN RES_OPTIONS TERMINFO*
		TERMCAP TERMPATH SSLKEYLOGFILE OPENSSL_*
		BASH* ENV SHELLOPTS PS0 PS1 PS2 PS4 IFS CDPATH GLOBIGNORE EXECIGNORE PROMPT* POSIXLY_CORRECT ZDOTDIR FPATH
		fish_* FCEDIT HIST* INPUTRC MAIL MAILPATH OLDPWD PWD _
		GIT_* GITHUB_ENV GITHUB_PATH HG* SVN_* CVS* *_RSH *_SSH RSYNC_*
		EDITOR VISUAL *_EDITOR PAGER *_PAGER LESS* MORE LV BROWSER *_BROWSER *_ASKPASS SSH_ASKPASS* SUDO_*
		*_COMMAND *_CMD *_SHELL DIFF* *_DIFF
		PYTHON* PY_* PIP_* PIPX_* VIRTUAL_ENV* CONDA_* UV_* POETRY_*
		NODE_* NPM_* npm_* YARN_* PNPM_* BUN_* DENO_* COREPACK_* VOLTA_* NVM_*
		PERL* RUBY* GEM_* BUNDLE_* RBENV_* LUA* PHP* TCL* R_* JULIA_* ELIXIR_* ERL* GUILE_* OCAML* CAML*
		JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_* JAVA_OPTS CLASSPATH MAVEN_* MVN_* GRADLE_* ANT_* SBT_* KOTLIN* SCALA* CLJ_*
		GO* CGO_* CARGO* RUST* CC CXX CPP AR AS NM CFLAGS CXXFLAGS CPPFLAGS LDFLAGS CMAKE_* MAKE* MFLAGS NINJA_*
		PKG_CONFIG* COMPILER_PATH GCC_* LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH CCACHE_*
		DOTNET_* CORECLR_* COREHOST_* COMPlus_* MONO_* MSBUILD*
		TAR_OPTIONS GZIP BZIP* XZ_* ZSTD_* UNZIP* ZIP* GREP_* AWK* POSIX_* FZF_* RIPGREP_* BAT_* FD_* ACK* AG_*
		CURL_HOME WGETRC MAILCAPS MAILRC MANPATH MANOPT GROFF_* TEX* BIB* GS_* MAGIC
		GTK_* GDK_PIXBUF_* GIO_* GST_* QT_* QML* KDE_* SDL_* VDPAU_* LIBVA_* LIBGL_* MESA_* VK_* __* DBUS_STARTER_*
		DIRENV_* MISE_* ASDF_* DOTENV_* NIX_* GUIX_* HOMEBREW_* DEBUGINFOD_* SYSTEMD_* LISTEN_* NOTIFY_SOCKET
		TF_CLI_* ANSIBLE_* HELM_* VAGRANT_* PACKER_* DOCKER_CLI_PLUGIN* KUBECTL_* KREW_*
		LAZARET_* CONTAINERS_* _CONTAINERS_* STORAGE_* BUILDAH_* PODMAN_*`)
}

// Environment is what of environ a command gets for ask, which runs in dir: only
// names that a shell could have set, none that is denied, no value that leads to
// a place which agents write to; PATH without such entries.
func Environment(environ []string, h *policy.Host, ask *wire.Ask, dir string) []string {
	deny := denied()
	leads := h.Leads(ask)
	out := make([]string, 0, len(environ)+2)
	for _, kv := range environ {
		name, value, found := strings.Cut(kv, "=")
		if found && name != "PATH" && plainName(name) && !covers(deny, name) && (name == "HOME" || !leads(value)) {
			out = append(out, kv)
		}
	}
	return append(out, "PATH="+h.CleanPath(ask), "PWD="+dir)
}

func covers(patterns []string, name string) bool {
	for _, p := range patterns {
		begin, prefix := strings.CutSuffix(p, "*")
		end, suffix := strings.CutPrefix(p, "*")
		if name == p || prefix && strings.HasPrefix(name, begin) || suffix && strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// plainName refuses, among others, what bash exports its functions as.
func plainName(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if s[i] != '_' && (c < 'a' || c > 'z') && (i == 0 || s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return s != ""
}
