package review

import (
	"strings"
)

// Kinds of findings.
const (
	KindGit       = "git"
	KindHooks     = "hooks"
	KindEditor    = "editor"
	KindAgent     = "agent"
	KindShell     = "shell"
	KindBuild     = "build"
	KindCI        = "ci"
	KindContainer = "container"
	KindDebugger  = "debugger"
	KindLink      = "link"
	KindMode      = "mode"
	KindProgram   = "program"
)

// rule is what is known of some names: a person reads about their changes.
type rule struct {
	kind string
	why  string
	// names are patterns, in lower case, as case does not count everywhere. They
	// hold at any depth, but for those that begin with "/". One that ends in "/" is
	// a directory with all that is in it. "*" stands for anything, once in the last
	// component.
	names string
	// parts makes of a file the parts that count; nil where all of it does.
	parts func(data []byte) map[string]string
	// afresh is for a file of which the parts come from others as well.
	afresh bool
}

// table is all that is known of names in a working tree.
func table() []rule {
	return []rule{
		{kind: KindGit, why: "git on the host obeys it: filters, merge drivers, what a submodule's address is", names: `
			.gitattributes .gitmodules .lfsconfig .gitconfig`},
		{kind: KindHooks, why: "git's hooks run it", names: `
			.husky/ .huskyrc .huskyrc.* husky.config.* .githooks/ .git-hooks/ githooks/ git-hooks/ .hooks/ .overcommit.yml .git_hooks/ .pre-commit-config.y*
			.pre-commit-hooks.y* lefthook.* .lefthook.* lefthook-local.* .lefthook-local.* .lefthook/ .lintstagedrc .lintstagedrc.*
			.simple-git-hooks.* simple-git-hooks.* .captainhook.json captainhook.json grumphp.yml grumphp.yml.dist
			.commitlintrc .commitlintrc.* .gitlint .czrc .cz.* prek.toml hk.pkl`},
		{kind: KindEditor, why: "an editor obeys it, or runs what it names, when it opens the directory", names: `
			.vscode/ .idea/ *.code-workspace .vs/ .zed/ .fleet/ .nova/ .theia/ .helix/ .kakrc .vim/ .vimrc _vimrc .gvimrc .exrc _exrc
			.nvim/ .nvimrc .nvim.lua .lvimrc .local.vimrc .vimspector.json .nvim-dap.lua .dir-locals.el .dir-locals-2.el .projectile
			*.sublime-project *.sublime-workspace .settings/ .project .classpath .cproject .externaltoolbuilders/ nbproject/
			*.iml *.ipr *.iws .clangd .ccls .neoconf.json .luarc.json .luarc.jsonc .nlsp-settings/ coc-settings.json .coc/ .lsp/
			.ycm_extra_conf.py pyrightconfig.json .metals/ .bloop/ .eslintrc .eslintrc.* .prettierrc .prettierrc.* .oxlintrc.json
			.markdownlint.* .markdownlint-cli2.* .textlintrc .textlintrc.* .tern-project .luacheckrc .credo.exs .standard.yml .scalafix.conf
			.php-cs-fixer.php .php-cs-fixer.dist.php psalm.xml psalm.xml.dist rector.php .clj-kondo/ .ipython/ .jupyter/ profile_default/
			ipython*_config.py jupyter*_config.py conftest.py docs/conf.py doc/conf.py .stylelintrc .stylelintrc.* .pylintrc pylintrc .rubocop.yml .solargraph.yml phpstan.neon phpstan.neon.dist
			.golangci.* ale_linters/`},
		{kind: KindAgent, why: "coding agents on the host take it for instructions or settings", names: `
			claude.md claude.local.md .claude/ .claude.json .clauderules agents.md agents.override.md agent.md .agents/ .agent/
			.mcp.json mcp.json .mcp/ mcp_config.json codex.md .codex/ gemini.md .gemini/ .geminiignore qwen.md .qwen/ .opencode/
			opencode.json opencode.jsonc opencode.md .cursor/ .cursorrules .cursorignore .windsurf/ .windsurfrules .codeium/
			.clinerules .clinerules/ .cline/ .roo/ .roorules .roorules-* .roomodes .kilocode/ .kilocodemodes .aider.conf.yml
			.aider.model.settings.yml .aider.model.metadata.json .continue/ .continuerules .github/copilot-instructions.md
			.github/instructions/ .github/prompts/ .github/chatmodes/ .github/agents/ .github/skills/ .github/hooks/ .amazonq/ .kiro/
			.junie/ .augment/ .augment-guidelines .goosehints .goose/ .crush.json crush.json crush.md .factory/ .amp/ .trae/ .openhands/
			.warp/ warp.md .rules .rovodev/ .devin/ .zencoder/ .vibe/ .letta/ .pi/ skill.md .copilot/ .ai/ llms.txt
			.sourcery.yaml .coderabbit.y* greptile.json
			.claude-plugin/ .ruler/ .grok/ .kimi/ .iflow/ iflow.md .codebuddy/ codebuddy.md .serena/ .plandex/ .jules/ .antigravity/ .tabnine/ .cody/
			.conductor/ conductor.json`},
		{kind: KindShell, why: "shells and version managers read it when somebody enters the directory", names: `
			.envrc .envrc.* direnv.toml .direnvrc .env .env.local .env.development .env.production .env.test .env.*.local .autoenv .autoenv.zsh .autoenv.leave .in .out .mise/ mise.toml .mise.toml
			mise.*.toml .mise.*.toml .config/mise/ .config/mise.toml mise-tasks/ .rtx.toml .tool-versions .asdfrc .sdkmanrc .ondirrc
			.rvmrc .rbenv-vars .ruby-version .ruby-gemset .python-version .node-version .nvmrc .java-version .go-version .lua-version
			.perl-version .php-version .terraform-version
			flake.nix shell.nix default.nix devenv.nix devenv.yaml devbox.json devshell.toml .flox/ pixi.toml
			.hermit/ .tmux.conf .tmuxinator.y* .tmuxp.y* .tmuxp.json .screenrc procfile procfile.* .foreman .overmind.env
			/.bashrc /.bash_profile /.bash_login /.bash_logout /.bash_aliases /.profile /.zshrc /.zshenv /.zprofile /.zlogin /.zlogout
			/.inputrc /.pam_environment /.xprofile /.xinitrc /.xsession /.ssh/ /.gnupg/ /.config/ /.local/bin/ /.local/share/applications/
			/.local/share/systemd/`},
		{kind: KindBuild, why: "a build tool, a package manager or a language's start-up runs it or obeys it", names: `
			makefile gnumakefile bsdmakefile makefile.* *.mk *.mak justfile .justfile *.just taskfile.y* taskfile.dist.y* .taskrc.y* magefile.go
			magefiles/ cmakelists.txt *.cmake cmakepresets.json cmakeuserpresets.json meson.build meson_options.txt configure configure.ac
			autogen.sh bootstrap.sh sconstruct sconscript wscript waf build.ninja build.bazel build workspace workspace.bazel
			module.bazel *.bzl .bazelrc *.bazelrc .bazelversion .bazeliskrc tools/bazel .buckconfig buck dodo.py
			build.gradle build.gradle.kts settings.gradle settings.gradle.kts *.gradle *.gradle.kts gradle.properties gradlew gradlew.bat
			gradle/wrapper/ gradle/*.toml buildsrc/ pom.xml mvnw mvnw.cmd .mvn/ build.xml ivy.xml build.sbt project/*.sbt
			project/build.properties project/*.scala .sbtopts .jvmopts build.sc build.mill .mill-version millw mill project.clj deps.edn bb.edn shadow-cljs.edn
			rakefile *.rake gemfile *.gemspec .gemrc .bundle/ guardfile .rspec .irbrc .pryrc bin/setup
			build.rs .cargo/ rust-toolchain rust-toolchain.toml build.zig build.zig.zon mix.exs .iex.exs .formatter.exs rebar.config
			rebar.config.script erlang.mk package.swift podfile fastlane/ dune-workspace .ocamlinit stack.yaml cabal.project setup.hs .ghci
			.npmrc .yarnrc .yarnrc.yml .yarn/releases/ .yarn/plugins/ .yarn/sdks/ .pnpmfile.cjs .pnpmfile.mjs pnpmfile.js pnpm-workspace.y*
			bunfig.toml .bun/ lerna.json nx.json turbo.json project.json rush.json common/config/rush/ .swcrc .babelrc .babelrc.* .mocharc.* .nycrc
			*.config.js *.config.cjs *.config.mjs *.config.ts *.config.cts *.config.mts gulpfile.* gruntfile.* binding.gyp *.gypi
			setup.py setup.cfg pip.conf pip.ini .pip/ uv.toml .condarc tox.ini noxfile.py fabfile.py tasks.py pytest.ini
			.pytest.ini mypy.ini .mypy.ini .flake8 .pdbrc .pdbrc.py sitecustomize.py usercustomize.py *.pth .pypirc pavement.py hatch.toml
			directory.build.props directory.build.targets directory.build.rsp directory.packages.props nuget.config global.json *.targets
			.config/dotnet-tools.json omnisharp.json packages.config composer.phar .php.ini php.ini .user.ini .htaccess artisan
			.rprofile .renviron .rbuildignore .julia/ startup.jl manifest.scm guix.scm .guile .sqliterc .psqlrc .my.cnf
			.ansible.cfg ansible.cfg .terraformrc terraform.rc .tflint.hcl .pulumirc earthfile snakefile nextflow.config .nextflow/
			.pnp.cjs .pnp.loader.mjs local.properties *.csproj *.fsproj *.vbproj *.vcxproj *.props *.proj pants.toml platformio.ini conanfile.py
			xmake.lua premake5.lua tupfile .config/nextest.toml cross.toml release.toml .air.toml nodemon.json .nodemonrc brewfile mkdocs.yml
			.storybook/ *.conf.js *.conf.ts webpack.* .simplecov .yardopts .busted phpunit.xml phpunit.xml.dist phpcs.xml phpcs.xml.dist
			.terraform/ .changeset/config.json .release-it.* .versionrc .versionrc.* .netrc .curlrc .wgetrc .ackrc .ripgreprc .ctags .ctags.d/ .perltidyrc .perlcriticrc`},
		{kind: KindBuild, why: "its scripts are run by package managers, some by an install alone", names: `package.json`, parts: packageJSON},
		{kind: KindBuild, why: "its scripts are run by composer, some by an install alone", names: `composer.json`, parts: composerJSON},
		{kind: KindBuild, why: "its tasks are run by deno", names: `deno.json deno.jsonc`, parts: denoJSON},
		{kind: KindBuild, why: "what builds and runs the project is named in it", names: `pyproject.toml`, parts: pyproject},
		{kind: KindBuild, why: "cargo runs what it names when it builds", names: `cargo.toml`, parts: cargoTOML},
		{kind: KindCI, why: "continuous integration runs it with the project's secrets, or lets it decide who reviews", names: `
			.github/workflows/ .github/actions/ .github/dependabot.y* .github/renovate.json* .github/codeowners codeowners docs/codeowners
			action.yml action.yaml .gitlab-ci.y* .gitlab/ .circleci/ .travis.yml jenkinsfile jenkinsfile.* .jenkins/ azure-pipelines*.yml
			.azure-pipelines/ .azuredevops/ .buildkite/ .drone.yml .drone.star .woodpecker.y* .woodpecker/ bitbucket-pipelines.yml
			.forgejo/ .gitea/ appveyor.yml .appveyor.yml cloudbuild.y* .cloudbuild/ .teamcity/ .cirrus.yml .cirrus.star .semaphore/
			buildspec.y* netlify.toml vercel.json .vercel/ render.yaml fly.toml wrangler.toml wrangler.json* .releaserc .releaserc.*
			.goreleaser.y* goreleaser.y* renovate.json* .renovaterc .renovaterc.* .builds/ .build.yml .tekton/ .concourse/ .ci/ codemagic.yaml
			bitrise.yml .readthedocs.y* sonar-project.properties`},
		{kind: KindContainer, why: "a container is built or started by it, with mounts and commands on the host", names: `
			.devcontainer/ .devcontainer.json dockerfile dockerfile.* *.dockerfile containerfile containerfile.* compose.*
			docker-compose* docker-bake.* vagrantfile .gitpod.yml .gitpod.dockerfile .gitpod/ .lando.yml .lando.*.yml
			.ddev/ tiltfile skaffold.yaml okteto.y* garden.y* devspace.yaml devfile.yaml .devfile.yaml werf.yaml kustomization.y*
			helmfile.y* *.container .idx/ .replit replit.nix .stackblitzrc .codesandbox/`},
		{kind: KindDebugger, why: "a debugger runs it when it starts in the directory", names: `
			.gdbinit gdbinit *-gdb.py *-gdb.gdb .lldbinit lldbinit .radare2rc .dbxinit .cgdbrc`},
		{kind: KindGit, why: "Lazaret's own configuration: what it loosens counts once you trust it", names: `/lazaret.toml`},
	}
}

// dependencies are directories of other people's code, of which a package manager
// fills and changes thousands of files: what is below them is not looked at by
// name.
func dependencies(name string) bool {
	switch name {
	case "node_modules", "bower_components", "jspm_packages", ".pnpm-store", ".venv", "venv", ".virtualenv", "virtualenv",
		".tox", ".nox", "__pypackages__", "site-packages", ".eggs", "__pycache__":
		return true
	}
	return false
}

// programDirs are where PATH leads to in many projects, beside the top itself.
func programDirs(name string) bool {
	switch name {
	case "bin", ".bin", "sbin":
		return true
	}
	return false
}

// pattern is one name of the table.
type pattern struct {
	rule  *rule
	above []string // the components before the last one
	first bool     // only at the top
}

type glob struct {
	prefix, suffix string
	pattern
}

// matcher finds the rule of a path.
type matcher struct {
	files map[string][]pattern // by the last component
	dirs  map[string][]pattern // the same of those that end in "/"
	globs []glob
	heads map[string]bool // the components before the last ones
}

func newMatcher(rules []rule) *matcher {
	m := &matcher{files: map[string][]pattern{}, dirs: map[string][]pattern{}, heads: map[string]bool{}}
	for i := range rules {
		for _, name := range strings.Fields(rules[i].names) {
			name, first := strings.CutPrefix(name, "/")
			name, dir := strings.CutSuffix(name, "/")
			above := strings.Split(name, "/")
			last := above[len(above)-1]
			p := pattern{rule: &rules[i], above: above[:len(above)-1], first: first}
			for _, name := range p.above {
				m.heads[name] = true
			}
			prefix, suffix, star := strings.Cut(last, "*")
			switch {
			case dir:
				m.dirs[last] = append(m.dirs[last], p)
			case star:
				m.globs = append(m.globs, glob{prefix, suffix, p})
			default:
				m.files[last] = append(m.files[last], p)
			}
		}
	}
	return m
}

// fits tells whether a pattern's components before the last are those of dir, the
// path of a directory in lower case, "" for the top.
func (p *pattern) fits(dir string) bool {
	if p.first {
		return dir == strings.Join(p.above, "/")
	}
	if len(p.above) == 0 {
		return true
	}
	tail := strings.Join(p.above, "/")
	return dir == tail || strings.HasSuffix(dir, "/"+tail)
}

// dir is the rule for all that is below the directory called name in dir, nil for
// none. Both are in lower case.
func (m *matcher) dir(dir, name string) *rule {
	for i := range m.dirs[name] {
		if p := &m.dirs[name][i]; p.fits(dir) {
			return p.rule
		}
	}
	return nil
}

// file is the rule for the file called name in dir, nil for none. Both are in
// lower case.
func (m *matcher) file(dir, name string) *rule {
	for i := range m.files[name] {
		if p := &m.files[name][i]; p.fits(dir) {
			return p.rule
		}
	}
	for i := range m.globs {
		g := &m.globs[i]
		if len(name) >= len(g.prefix)+len(g.suffix) && strings.HasPrefix(name, g.prefix) && strings.HasSuffix(name, g.suffix) && g.fits(dir) {
			return g.rule
		}
	}
	return nil
}
