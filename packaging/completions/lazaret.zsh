#compdef lazaret
# zsh completion of lazaret; generated, do not edit.

_lazaret() {
    local cmd='' word='' prev=${words[CURRENT-1]}
    local -a flags items
    for word in ${words[2,CURRENT-1]}; do
        case "$cmd $word" in
            ' init') cmd='init' ;;
            ' image') cmd='image' ;;
            ' run') cmd='run' ;;
            ' doctor') cmd='doctor' ;;
            ' status') cmd='status' ;;
            ' sessions') cmd='sessions' ;;
            ' stop') cmd='stop' ;;
            ' review') cmd='review' ;;
            ' logs') cmd='logs' ;;
            ' console') cmd='console' ;;
            ' domain') cmd='domain' ;;
            ' net') cmd='net' ;;
            ' audit') cmd='audit' ;;
            ' git') cmd='git' ;;
            ' state') cmd='state' ;;
            ' prune') cmd='prune' ;;
            ' config') cmd='config' ;;
            ' trust') cmd='trust' ;;
            ' completion') cmd='completion' ;;
            ' help') cmd='help' ;;
            'image build') cmd='image build' ;;
            'image update') cmd='image update' ;;
            'image list') cmd='image list' ;;
            'net allow') cmd='net allow' ;;
            'net deny') cmd='net deny' ;;
            'net list') cmd='net list' ;;
            'net log') cmd='net log' ;;
            'audit list') cmd='audit list' ;;
            'audit show') cmd='audit show' ;;
            'audit verify') cmd='audit verify' ;;
            'audit export') cmd='audit export' ;;
            'audit sign') cmd='audit sign' ;;
            'git status') cmd='git status' ;;
            'git diff') cmd='git diff' ;;
            'git log') cmd='git log' ;;
            'git merge') cmd='git merge' ;;
            'git rebase') cmd='git rebase' ;;
            'git include') cmd='git include' ;;
            'git drop') cmd='git drop' ;;
            'git export') cmd='git export' ;;
            'state diff') cmd='state diff' ;;
            'state reset') cmd='state reset' ;;
            'state snapshot') cmd='state snapshot' ;;
            'state restore') cmd='state restore' ;;
            'state list') cmd='state list' ;;
            'state rm') cmd='state rm' ;;
            'state rebase') cmd='state rebase' ;;
            'config show') cmd='config show' ;;
            'config check') cmd='config check' ;;
        esac
    done
    case "$cmd $prev" in
        'init --scope') compadd -- user system; return ;;
        'init --engine') _message 'ENGINE'; return ;;
        'init --engine-config') _files; return ;;
        'init --runtime-path') _files; return ;;
        'init --podman-version') _message 'VERSION'; return ;;
        'init --image') _message 'NAME'; return ;;
        'image build --base') _message 'DEBIAN'; return ;;
        'image build --ca') _files; return ;;
        'image build --config') _files; return ;;
        'image update --base') _message 'DEBIAN'; return ;;
        'image update --ca') _files; return ;;
        'image update --config') _files; return ;;
        'run --image') _message 'IMAGE'; return ;;
        'run --config') _files; return ;;
        'sessions --last') _message 'N'; return ;;
        'sessions --config') _files; return ;;
        'stop --profile'|'stop -p') _message 'NAME'; return ;;
        'stop --config') _files; return ;;
        'review --profile'|'review -p') _message 'NAME'; return ;;
        'review --config') _files; return ;;
        'logs --profile'|'logs -p') _message 'NAME'; return ;;
        'logs --config') _files; return ;;
        'logs --lines'|'logs -n') _message 'N'; return ;;
        'domain --profile'|'domain -p') _message 'NAME'; return ;;
        'domain --config') _files; return ;;
        'net allow --profile'|'net allow -p') _message 'NAME'; return ;;
        'net allow --workspace'|'net allow -w') _files; return ;;
        'net allow --config') _files; return ;;
        'net deny --profile'|'net deny -p') _message 'NAME'; return ;;
        'net deny --workspace'|'net deny -w') _files; return ;;
        'net deny --config') _files; return ;;
        'net list --profile'|'net list -p') _message 'NAME'; return ;;
        'net list --workspace'|'net list -w') _files; return ;;
        'net list --config') _files; return ;;
        'net log --profile'|'net log -p') _message 'NAME'; return ;;
        'net log --workspace'|'net log -w') _files; return ;;
        'net log --config') _files; return ;;
        'audit list --profile'|'audit list -p') _message 'NAME'; return ;;
        'audit list --workspace'|'audit list -w') _files; return ;;
        'audit list --domain') _message 'HASH'; return ;;
        'audit list --config') _files; return ;;
        'audit list --since') _message 'TIME'; return ;;
        'audit list --until') _message 'TIME'; return ;;
        'audit list --kind') _message 'KIND'; return ;;
        'audit list --session') _message 'ID'; return ;;
        'audit list --verdict') _message 'VERDICT'; return ;;
        'audit list --last') _message 'N'; return ;;
        'audit show --profile'|'audit show -p') _message 'NAME'; return ;;
        'audit show --workspace'|'audit show -w') _files; return ;;
        'audit show --domain') _message 'HASH'; return ;;
        'audit show --config') _files; return ;;
        'audit verify --profile'|'audit verify -p') _message 'NAME'; return ;;
        'audit verify --workspace'|'audit verify -w') _files; return ;;
        'audit verify --domain') _message 'HASH'; return ;;
        'audit verify --config') _files; return ;;
        'audit verify --signed') _files; return ;;
        'audit verify --signer') _files; return ;;
        'audit export --profile'|'audit export -p') _message 'NAME'; return ;;
        'audit export --workspace'|'audit export -w') _files; return ;;
        'audit export --domain') _message 'HASH'; return ;;
        'audit export --config') _files; return ;;
        'audit export --since') _message 'TIME'; return ;;
        'audit export --until') _message 'TIME'; return ;;
        'audit export --kind') _message 'KIND'; return ;;
        'audit export --session') _message 'ID'; return ;;
        'audit export --verdict') _message 'VERDICT'; return ;;
        'audit export --format') _message 'FORMAT'; return ;;
        'audit sign --profile'|'audit sign -p') _message 'NAME'; return ;;
        'audit sign --workspace'|'audit sign -w') _files; return ;;
        'audit sign --domain') _message 'HASH'; return ;;
        'audit sign --config') _files; return ;;
        'audit sign --key') _files; return ;;
        'audit sign --output') _files; return ;;
        'git status --profile'|'git status -p') _message 'NAME'; return ;;
        'git status --config') _files; return ;;
        'git diff --profile'|'git diff -p') _message 'NAME'; return ;;
        'git diff --config') _files; return ;;
        'git log --profile'|'git log -p') _message 'NAME'; return ;;
        'git log --config') _files; return ;;
        'git merge --profile'|'git merge -p') _message 'NAME'; return ;;
        'git merge --config') _files; return ;;
        'git rebase --profile'|'git rebase -p') _message 'NAME'; return ;;
        'git rebase --config') _files; return ;;
        'git include --profile'|'git include -p') _message 'NAME'; return ;;
        'git include --config') _files; return ;;
        'git drop --profile'|'git drop -p') _message 'NAME'; return ;;
        'git drop --config') _files; return ;;
        'git export --profile'|'git export -p') _message 'NAME'; return ;;
        'git export --config') _files; return ;;
        'state diff --workspace'|'state diff -w') _files; return ;;
        'state diff --profile'|'state diff -p') _message 'NAME'; return ;;
        'state diff --config') _files; return ;;
        'state diff --image') _message 'IMAGE'; return ;;
        'state reset --workspace'|'state reset -w') _files; return ;;
        'state reset --profile'|'state reset -p') _message 'NAME'; return ;;
        'state reset --config') _files; return ;;
        'state snapshot --workspace'|'state snapshot -w') _files; return ;;
        'state snapshot --profile'|'state snapshot -p') _message 'NAME'; return ;;
        'state snapshot --config') _files; return ;;
        'state restore --workspace'|'state restore -w') _files; return ;;
        'state restore --profile'|'state restore -p') _message 'NAME'; return ;;
        'state restore --config') _files; return ;;
        'state list --workspace'|'state list -w') _files; return ;;
        'state list --profile'|'state list -p') _message 'NAME'; return ;;
        'state list --config') _files; return ;;
        'state rm --workspace'|'state rm -w') _files; return ;;
        'state rm --profile'|'state rm -p') _message 'NAME'; return ;;
        'state rm --config') _files; return ;;
        'state rebase --workspace'|'state rebase -w') _files; return ;;
        'state rebase --profile'|'state rebase -p') _message 'NAME'; return ;;
        'state rebase --config') _files; return ;;
        'state rebase --image') _message 'IMAGE'; return ;;
        'state rebase --skip') _message 'PACKAGE'; return ;;
        'prune --config') _files; return ;;
        'config show --profile') _message 'NAME'; return ;;
        'config show --config') _files; return ;;
        'config show --workspace') _files; return ;;
        'config check --config') _files; return ;;
        'config check --workspace') _files; return ;;
    esac
    case $cmd in
        '')
            flags=(
                '--version:print version and commit'
                '--help:show help'
                '-h:show help'
            )
            items=(
                'init:register lazaret as a runtime of podman or another engine, and set the rest up'
                'image:build the agents'\'' images and keep them new'
                'run:run an agent in the sandbox of the current directory'
                'doctor:check whether this machine can run sandboxes'
                'status:show the domains in use, their containers and sessions'
                'sessions:list the sessions of all domains, those that live and the last that have ended'
                'stop:end the sessions of a domain, its sandboxes and its network'
                'review:show what an agent has changed that tools on the host run or obey'
                'logs:show what a domain'\''s coordinator, guard and network have written'
                'console:answer what the sandboxes ask for'
                'domain:print the domain of a workspace: its hash and its paths'
                'net:see and change the filtered network of a domain that is in use'
                'audit:show and check what has happened in a domain'
                'git:look at an agent'\''s branch, take it over, and export its repositories'
                'state:look at what an agent has installed and changed, keep it, and take it back'
                'prune:remove the domains whose workspace is gone'
                'config:show or check the configuration'
                'trust:let the configuration file of a workspace loosen the sandbox'
                'completion:print the completion script of a shell'
                'help:show the help of a command'
            )
            ;;
        'init')
            flags=(
                '--scope:whose podman: user|system; root means system if not told otherwise, others user'
                '--engine:ENGINE to register with: podman|docker|containerd|crio'
                '--engine-config:the engine'\''s configuration FILE, where it is not docker'\''s, containerd'\''s or CRI-O'\''s default'
                '--runtime-path:FILE to register; beside lazaret if not given'
                '--podman-version:write for podman VERSION, not for the installed one'
                '--register-only:register the runtime and do nothing else'
                '--yes:do not ask: write config.toml where there is none'
                '-y:do not ask: write config.toml where there is none'
                '--image:also build the image NAME: claude, codex, gemini, opencode, shell'
                '--dry-run:show the change and touch nothing'
                '--uninstall:remove the drop-in again'
                '--force:replace or remove a drop-in that was changed by hand; a copy is kept'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'image')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
                'build:build a profile'\''s image'
                'update:pin the newest versions, and build with them the images that are there'
                'list:show the images with the versions that are pinned and built'
            )
            ;;
        'image build')
            flags=(
                '--all:all of claude, codex, gemini, opencode, shell'
                '--base:stand on the image DEBIAN, or on one that debootstrap makes, by the word debootstrap'
                '--ca:also trust the PEM certificates of FILE, such as those of a company'\''s proxy'
                '--config:also read FILE, above the other layers'
                '--no-cache:build everything anew, with the newest packages of Debian'\''s'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'image update')
            flags=(
                '--dry-run:show what is newer and touch nothing'
                '--pin-only:build nothing'
                '--base:stand on the image DEBIAN, or on one that debootstrap makes, by the word debootstrap'
                '--ca:also trust the PEM certificates of FILE, such as those of a company'\''s proxy'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'image list')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'run')
            flags=(
                '--fresh:end the sandbox that runs, with all its sessions, and start another'
                '--detach:run CMD in the background; its requests go to lazaret console'
                '-d:run CMD in the background; its requests go to lazaret console'
                '--rm:remove the sandbox'\''s container at its end; --rm=false keeps it for podman logs, diff and commit'
                '--image:use IMAGE instead of the profile'\''s'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'doctor')
            flags=(
                '--json:print one JSON object with all checks'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'status')
            flags=(
                '--watch:show it anew every second, until interrupted'
                '-w:show it anew every second, until interrupted'
                '--json:print one JSON object'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'sessions')
            flags=(
                '--live:only those that live'
                '--last:at most the last N that have ended; 0 for all'
                '--config:also read FILE, above the other layers'
                '--json:print one JSON object'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'stop')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--all:every domain of yours that is in use'
                '-a:every domain of yours that is in use'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'review')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--accept:show it, and take the workspace as it is now for the new baseline'
                '--json:print one JSON object'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'logs')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--follow:go on with what is written from now on, until interrupted'
                '-f:go on with what is written from now on, until interrupted'
                '--lines:begin with the last N lines; 0 for all'
                '-n:begin with the last N lines; 0 for all'
                '--json:print the lines as they were written, one JSON object each'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'console')
            flags=(
                '--headless:run automatic approvals only, without a screen; logs to standard error'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'domain')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--json:print one JSON object'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'net')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
                'allow:let the sandboxes reach something, until the domain is no longer in use'
                'deny:keep the sandboxes from something, and end what they have open to it'
                'list:show what the sandboxes may reach, and what was refused'
                'log:show the decisions of the domain'\''s network'
            )
            ;;
        'net allow')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--workspace:the domain of the workspace at PATH'
                '-w:the domain of the workspace at PATH'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'net deny')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--workspace:the domain of the workspace at PATH'
                '-w:the domain of the workspace at PATH'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'net list')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--workspace:the domain of the workspace at PATH'
                '-w:the domain of the workspace at PATH'
                '--config:also read FILE, above the other layers'
                '--json:print JSON'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'net log')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--workspace:the domain of the workspace at PATH'
                '-w:the domain of the workspace at PATH'
                '--config:also read FILE, above the other layers'
                '--json:print JSON'
                '--blocked:only what was refused, or would be'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'audit')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
                'list:list the records, oldest first'
                'show:show one record in full'
                'verify:check that no record was changed, removed, exchanged or cut off'
                'export:print the records for another program'
                'sign:sign where the chains have come to with an SSH key'
            )
            ;;
        'audit list')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--workspace:the domain of the workspace at PATH'
                '-w:the domain of the workspace at PATH'
                '--domain:the domain with this HASH, also one whose workspace is gone'
                '--config:also read FILE, above the other layers'
                '--since:only from TIME on: RFC 3339, or how long ago, such as 90m or 7d'
                '--until:only before TIME'
                '--kind:only records of KIND, such as escalation or escalation.run; may be repeated'
                '--session:only of the session whose id begins with ID'
                '--verdict:only with VERDICT, such as approved, denied or blocked; may be repeated'
                '--last:only the last N of them'
                '--json:print JSON, one object a line'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'audit show')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--workspace:the domain of the workspace at PATH'
                '-w:the domain of the workspace at PATH'
                '--domain:the domain with this HASH, also one whose workspace is gone'
                '--config:also read FILE, above the other layers'
                '--json:print JSON, one object a line'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'audit verify')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--workspace:the domain of the workspace at PATH'
                '-w:the domain of the workspace at PATH'
                '--domain:the domain with this HASH, also one whose workspace is gone'
                '--config:also read FILE, above the other layers'
                '--signed:the head that was signed, with its signature in FILE.sig'
                '--signer:the public key in FILE must have signed it'
                '--json:print JSON, one object a line'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'audit export')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--workspace:the domain of the workspace at PATH'
                '-w:the domain of the workspace at PATH'
                '--domain:the domain with this HASH, also one whose workspace is gone'
                '--config:also read FILE, above the other layers'
                '--since:only from TIME on: RFC 3339, or how long ago, such as 90m or 7d'
                '--until:only before TIME'
                '--kind:only records of KIND, such as escalation or escalation.run; may be repeated'
                '--session:only of the session whose id begins with ID'
                '--verdict:only with VERDICT, such as approved, denied or blocked; may be repeated'
                '--format:FORMAT is jsonl, ocsf or cef'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'audit sign')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--workspace:the domain of the workspace at PATH'
                '-w:the domain of the workspace at PATH'
                '--domain:the domain with this HASH, also one whose workspace is gone'
                '--config:also read FILE, above the other layers'
                '--key:sign with the private key in FILE, or the agent'\''s of the public key in it'
                '--output:write to FILE and FILE.sig'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'git')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
                'status:show the agent'\''s branch, its worktree, and what waits for export'
                'diff:show what the agent'\''s branch changes: git diff HEAD...BRANCH'
                'log:show the commits of the agent'\''s branch: git log HEAD..BRANCH'
                'merge:merge the agent'\''s branch into yours: git merge BRANCH'
                'rebase:put the agent'\''s commits on top of your current commit'
                'include:copy your uncommitted changes into the agent'\''s worktree'
                'drop:remove the agent'\''s branch and worktree'
                'export:put a repository that was born in a sandbox onto the host'
            )
            ;;
        'git status')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--json:print one JSON object'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git diff')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git log')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git merge')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git rebase')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git include')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git drop')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--yes:do not ask'
                '-y:do not ask'
                '--force:lose what is not merged'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'git export')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--list:list what can be exported; PATH is the workspace'
                '--force:export in spite of git fsck'\''s errors'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'state')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
                'diff:show what was installed and changed against the image'
                'reset:throw the changes away: the next start is the image'\''s'
                'snapshot:keep a copy of the changes'
                'restore:put a snapshot in the place of the changes'
                'list:list the snapshots, with their sizes'
                'rm:remove a snapshot'
                'rebase:start anew from the image as it is now, and install again what the agent had installed'
            )
            ;;
        'state diff')
            flags=(
                '--workspace:the domain of the workspace that PATH is or lies in instead of the current directory'\''s'
                '-w:the domain of the workspace that PATH is or lies in instead of the current directory'\''s'
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--all:show every file, also those of packages and in new directories'
                '--image:compare with IMAGE of podman'\''s instead of the one the changes were made over'
                '--json:print one JSON object'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'state reset')
            flags=(
                '--workspace:the domain of the workspace that PATH is or lies in instead of the current directory'\''s'
                '-w:the domain of the workspace that PATH is or lies in instead of the current directory'\''s'
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--yes:do not ask'
                '-y:do not ask'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'state snapshot')
            flags=(
                '--workspace:the domain of the workspace that PATH is or lies in instead of the current directory'\''s'
                '-w:the domain of the workspace that PATH is or lies in instead of the current directory'\''s'
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'state restore')
            flags=(
                '--workspace:the domain of the workspace that PATH is or lies in instead of the current directory'\''s'
                '-w:the domain of the workspace that PATH is or lies in instead of the current directory'\''s'
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--yes:do not ask'
                '-y:do not ask'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'state list')
            flags=(
                '--workspace:the domain of the workspace that PATH is or lies in instead of the current directory'\''s'
                '-w:the domain of the workspace that PATH is or lies in instead of the current directory'\''s'
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--json:print one JSON object'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'state rm')
            flags=(
                '--workspace:the domain of the workspace that PATH is or lies in instead of the current directory'\''s'
                '-w:the domain of the workspace that PATH is or lies in instead of the current directory'\''s'
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'state rebase')
            flags=(
                '--workspace:the domain of the workspace that PATH is or lies in instead of the current directory'\''s'
                '-w:the domain of the workspace that PATH is or lies in instead of the current directory'\''s'
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--image:start from IMAGE instead of the one that the changes were made over, as it is now'
                '--skip:do not install PACKAGE again; may be given several times'
                '--keep:keep the snapshot of the old changes'
                '--yes:do not ask'
                '-y:do not ask'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'prune')
            flags=(
                '--config:also read FILE, above the other layers'
                '--dry-run:list them and remove nothing'
                '--yes:do not ask'
                '-y:do not ask'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'config')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
                'show:print every effective value and where it comes from'
                'check:report every mistake with file, line and key'
            )
            ;;
        'config show')
            flags=(
                '--profile:leave out the other profiles than NAME'
                '--json:print one JSON object'
                '--config:read FILE above all other layers'
                '--workspace:take the lazaret.toml of DIR'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'config check')
            flags=(
                '--config:read FILE above all other layers'
                '--workspace:take the lazaret.toml of DIR'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'trust')
            flags=(
                '--yes:do not ask'
                '-y:do not ask'
                '--revoke:trust the file no longer'
                '--list:list the trusted files'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'completion')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
                'bash'
                'zsh'
                'fish'
            )
            ;;
        'help')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
    esac
    if [[ $PREFIX == -* ]]; then
        _describe -o -t options option flags
    else
        _describe -t commands command items
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _lazaret "$@"
else
    compdef _lazaret lazaret
fi
